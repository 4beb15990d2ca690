//! `imageOverrider`: changes the registry, the repository or the tag of images.

use atoll_api::override_policy::{ImageComponent, ImageScope, OverriderOperator};
use serde_json::{Map, Value};

use super::containers;
use super::pointer::Pointer;
use super::reference::{Reference, is_digest, is_tag};

/// One change of images, with its value for the cluster.
pub(super) struct Change<'a> {
    pub(super) predicate: Option<&'a Pointer>,
    pub(super) scope: ImageScope,
    pub(super) component: ImageComponent,
    pub(super) operator: OverriderOperator,
    pub(super) value: &'a str,
}

impl Change<'_> {
    /// Makes the change. The error names the image.
    pub(super) fn apply(&self, manifest: &mut Value) -> Result<(), String> {
        if let Some(predicate) = self.predicate {
            return self.set(predicate.get(manifest)?);
        }
        match self.scope {
            ImageScope::Containers => {
                for container in containers::listed(manifest) {
                    self.set_image(container)?;
                }
                Ok(())
            }
            ImageScope::AllContainers => {
                containers::each_of_every_template(manifest, &mut |container| {
                    self.set_image(container)
                })
            }
        }
    }

    fn set_image(&self, container: &mut Map<String, Value>) -> Result<(), String> {
        match container.get_mut("image") {
            Some(image) => self.set(image),
            None => Err("a container has no image".to_owned()),
        }
    }

    fn set(&self, image: &mut Value) -> Result<(), String> {
        let Value::String(text) = image else {
            return Err(format!("the image is {image}, which is not text"));
        };
        let mut reference = Reference::parse(text)?;
        self.change(&mut reference).map_err(|problem| format!("image {text:?}: {problem}"))?;
        *text = reference.to_string();
        Ok(())
    }

    fn change(&self, image: &mut Reference) -> Result<(), String> {
        match self.component {
            ImageComponent::Registry => image.registry = self.changed(&image.registry),
            ImageComponent::Repository => {
                let repository = self.changed(&image.repository);
                if repository.is_empty() {
                    return Err("no image name would be left without its repository".to_owned());
                }
                image.repository = repository;
            }
            ImageComponent::Tag => self.change_tag(image),
        }
        Ok(())
    }

    fn changed(&self, old: &str) -> String {
        match self.operator {
            OverriderOperator::Add => format!("{old}{}", self.value),
            OverriderOperator::Replace => self.value.to_owned(),
            OverriderOperator::Remove => String::new(),
        }
    }

    /// The component is the tag, or the digest of an image without tag. A text that is neither changes nothing.
    fn change_tag(&self, image: &mut Reference) {
        let old = if image.tag.is_empty() { &image.digest } else { &image.tag };
        let new = self.changed(old);
        if self.operator == OverriderOperator::Remove {
            if image.tag.is_empty() {
                image.digest.clear();
            }
            image.tag.clear();
        } else if is_tag(&new) {
            image.tag = new;
        } else if is_digest(&new) {
            image.digest = new;
        }
    }
}
