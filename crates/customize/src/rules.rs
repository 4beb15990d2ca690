//! The rules of all customizations, by kind and operation.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use atoll_api::customization::{
    Operation, OperationUse, ResourceInterpreterCustomizationSpec, RuleText, pointer_tokens,
};
use serde_json::Value;

use crate::error::RuleError;
use crate::request::{Request, Response};
use crate::{cel, paths, results, script};

/// The rules of all customizations. Immutable: a change of a customization makes a new set. Rules are compiled when they
/// are used first, on the thread that runs them: to make a set is cheap.
#[derive(Debug, Clone, Default)]
pub struct Customizations {
    kinds: BTreeMap<Kind, BTreeMap<Operation, Vec<Rule>>>,
}

/// API version and kind.
type Kind = (String, String);

/// The rule of one customization for one operation.
#[derive(Debug, Clone)]
struct Rule {
    customization: Arc<str>,
    operation: Operation,
    spec: Arc<ResourceInterpreterCustomizationSpec>,
    program: Arc<OnceLock<Result<Program, RuleError>>>,
}

#[derive(Debug, Clone)]
enum Program {
    Lua(Arc<str>),
    Cel(Arc<cel::Expression>),
    Paths(Arc<[Vec<String>]>),
    Pointer(Arc<[String]>),
}

/// Why a customization has no answer. The next layer answers instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("customization {customization}, {}: {error}", .operation.field())]
pub struct Failure {
    /// Name of the customization.
    pub customization: String,
    /// The operation.
    pub operation: Operation,
    /// What happened.
    pub error: RuleError,
}

impl Customizations {
    /// Takes in customizations with their names. If several have a rule for an operation of a kind, the first by name
    /// answers; references to dependencies are united.
    pub fn new<'a>(
        all: impl IntoIterator<Item = (&'a str, &'a ResourceInterpreterCustomizationSpec)>,
    ) -> Self {
        Self::of(all.into_iter().map(|(name, spec)| (name, Arc::new(spec.clone()))))
    }

    /// The same with shared specs, which are not copied.
    pub fn of<'a>(
        all: impl IntoIterator<Item = (&'a str, Arc<ResourceInterpreterCustomizationSpec>)>,
    ) -> Self {
        let sorted: BTreeMap<&str, _> = all.into_iter().collect();
        let mut set = Self::default();
        for (name, spec) in sorted {
            let kind = (spec.target.api_version.clone(), spec.target.kind.clone());
            let operations = set.kinds.entry(kind).or_default();
            for operation in Operation::ALL {
                if spec.customizations.rule(operation).is_some() {
                    operations.entry(operation).or_default().push(Rule {
                        customization: name.into(),
                        operation,
                        spec: Arc::clone(&spec),
                        program: Arc::default(),
                    });
                }
            }
        }
        set
    }

    /// Whether a customization has a rule for this operation of the object's kind.
    #[must_use]
    pub fn handles(&self, object: &Value, operation: Operation) -> bool {
        !self.rules(object, operation).is_empty()
    }

    /// The same by API version and kind.
    #[must_use]
    pub fn handles_kind(&self, api_version: &str, kind: &str, operation: Operation) -> bool {
        !self.rules_of(api_version, kind, operation).is_empty()
    }

    /// The customization whose rule answers for this operation of the object's kind; of several that are united, the
    /// first.
    #[must_use]
    pub fn answering(&self, object: &Value, operation: Operation) -> Option<&str> {
        self.rules(object, operation).first().map(|rule| &*rule.customization)
    }

    /// What a customization is used for, for its status.
    #[must_use]
    pub fn uses(
        &self,
        name: &str,
        spec: &ResourceInterpreterCustomizationSpec,
    ) -> Vec<OperationUse> {
        let kind = (spec.target.api_version.clone(), spec.target.kind.clone());
        let Some(operations) = self.kinds.get(&kind) else { return Vec::new() };
        let of_this = operations.iter().filter_map(|(operation, rules)| {
            rules.iter().find(|rule| &*rule.customization == name)?;
            let first = &rules.first()?.customization;
            let used = &**first == name || *operation == Operation::InterpretDependency;
            let overruled_by = (!used).then(|| first.to_string());
            Some(OperationUse { operation: *operation, used, overruled_by })
        });
        of_this.collect()
    }

    /// The answer to a question, computed on this thread within [`crate::limits`]; `None` if no customization has a rule
    /// for it. Use a [`crate::Pool`] where the thread must not wait.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Option<Result<Response, Failure>> {
        let rules = self.rules(request.object(), request.operation());
        let first = rules.first()?;
        if request.operation() != Operation::InterpretDependency {
            return Some(first.answer(request));
        }
        let mut all = Vec::new();
        for rule in rules {
            match rule.answer(request) {
                Ok(Response::Dependencies(some)) => all.extend(some),
                Ok(_) => {}
                Err(failure) => return Some(Err(failure)),
            }
        }
        Some(Ok(Response::Dependencies(results::united(all))))
    }

    fn rules(&self, object: &Value, operation: Operation) -> &[Rule] {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        self.rules_of(text("apiVersion"), text("kind"), operation)
    }

    fn rules_of(&self, api_version: &str, kind: &str, operation: Operation) -> &[Rule] {
        if self.kinds.is_empty() {
            return &[];
        }
        let operations = self.kinds.get(&(api_version.to_owned(), kind.to_owned()));
        operations.and_then(|rules| rules.get(&operation)).map_or(&[], Vec::as_slice)
    }
}

/// The rules of a customization that do not compile.
#[must_use]
pub fn compile_problems(name: &str, spec: &ResourceInterpreterCustomizationSpec) -> Vec<Failure> {
    let rules = Operation::ALL.into_iter();
    let rules = rules.filter_map(|op| Some((op, spec.customizations.rule(op)?)));
    rules
        .filter_map(|(operation, text)| {
            let error = Program::compile(text).err()?;
            Some(Failure { customization: name.to_owned(), operation, error })
        })
        .collect()
}

impl Rule {
    fn compile(&self) -> Result<Program, RuleError> {
        let text = self.spec.customizations.rule(self.operation);
        text.map_or_else(
            || Err(RuleError::Compile("the rule is missing".to_owned())),
            Program::compile,
        )
    }

    fn answer(&self, request: &Request) -> Result<Response, Failure> {
        let program = self.program.get_or_init(|| self.compile()).as_ref().map_err(Clone::clone);
        program.and_then(|program| program.answer(request)).map_err(|error| Failure {
            customization: self.customization.to_string(),
            operation: request.operation(),
            error,
        })
    }
}

impl Program {
    fn compile(text: RuleText<'_>) -> Result<Self, RuleError> {
        match text {
            RuleText::Lua(text) => {
                script::check(text)?;
                Ok(Self::Lua(text.into()))
            }
            RuleText::Cel(text) => Ok(Self::Cel(Arc::new(cel::Expression::compile(text)?))),
            RuleText::Pointer(text) => {
                Ok(Self::Pointer(pointer_tokens(text).map_err(RuleError::Compile)?.into()))
            }
            RuleText::Paths(texts) => {
                let paths: Result<Vec<_>, _> =
                    texts.iter().map(|path| pointer_tokens(path)).collect();
                Ok(Self::Paths(paths.map_err(RuleError::Compile)?.into()))
            }
        }
    }

    fn answer(&self, request: &Request) -> Result<Response, RuleError> {
        match (self, request) {
            (Self::Lua(text), _) => script::answer(text, request),
            (Self::Cel(expression), _) => expression.answer(request),
            (Self::Paths(paths), Request::Retain { desired, observed }) => {
                let retained = paths::retain(paths, desired, observed)?;
                Ok(Response::Object(results::changed(desired, retained)?))
            }
            (Self::Pointer(path), Request::Revise { object, replicas }) => {
                let revised = paths::revise(path, object, *replicas)?;
                Ok(Response::Object(results::changed(object, revised)?))
            }
            (Self::Paths(_) | Self::Pointer(_), _) => {
                Err(RuleError::Compile(format!("{} takes a script", request.operation().field())))
            }
        }
    }
}
