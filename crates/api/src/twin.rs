//! Cluster-scoped twins: a second kind with the spec and status of a namespaced one.
//!
//! `kube`'s derive creates one kind per spec type. A twin shares the types, so that code for policies or bindings is
//! written once.

/// Declares `$twin` as the cluster-scoped twin of the derived kind `$original`.
macro_rules! cluster_scoped_twin {
    ($(#[$meta:meta])* $twin:ident of $original:ident { $spec:ty, $status:ty }, $plural:literal, $short:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $twin {
            /// Standard object metadata.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is asked for.
            pub spec: $spec,
            /// What the controller says of it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $twin {
            /// The CRD of the original kind, with another name and scope.
            #[must_use]
            pub fn crd() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
                let mut crd = <$original as kube::CustomResourceExt>::crd();
                crd.metadata.name = Some(format!("{}.{}", $plural, crd.spec.group));
                crd.spec.scope = "Cluster".to_owned();
                crd.spec.names.kind = stringify!($twin).to_owned();
                crd.spec.names.plural = $plural.to_owned();
                crd.spec.names.singular = Some(stringify!($twin).to_lowercase());
                crd.spec.names.short_names = Some(vec![$short.to_owned()]);
                crd
            }
        }

        impl kube::Resource for $twin {
            type DynamicType = ();
            type Scope = kube::core::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($twin).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$original as kube::Resource>::group(&()).into_owned().into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                crate::VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use cluster_scoped_twin;
