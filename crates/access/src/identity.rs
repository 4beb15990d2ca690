//! As whom a user of the hub appears on a member.
//!
//! Names that start with `system:` mean something else on every cluster, so they do not cross. A ServiceAccount of the
//! hub gets a name that no authenticator of the member issues.

use std::collections::{BTreeMap, BTreeSet};

/// Group of all authenticated users; the only `system:` group that crosses unless a member lists others.
pub const AUTHENTICATED: &str = "system:authenticated";
const SYSTEM: &str = "system:";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Prefix of names that only this module makes.
const HUB: &str = "atoll:hub:";
/// Limit of the bytes of one name: names become headers.
const MAX_NAME: usize = 1024;
/// Limit of the groups of one request. kube-apiserver limits all headers of a request to 1 MiB.
pub const MAX_GROUPS: usize = 500;

/// A user as a cluster's API server names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// uid, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further fields of the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a member's administrator lets cross, in addition to ordinary user names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    /// Whether every group without a `system:` name crosses.
    pub all_groups: bool,
    /// Groups that cross, also `system:` ones.
    pub groups: BTreeSet<String>,
    /// `system:` users that cross.
    pub system_users: BTreeSet<String>,
    /// Keys of extra fields that cross.
    pub extra: BTreeSet<String>,
}

/// Why a user cannot act on a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The name is missing, too long, or would change on its way through a header.
    #[error("the user name {0:?} cannot be used on a member")]
    Name(String),
    /// A `system:` user that the member does not admit.
    #[error(
        "user {0:?} does not act on members: names that start with \"system:\" do not cross unless the member's agent runs with --proxy-system-user"
    )]
    System(String),
    /// The name looks like one that Atoll makes.
    #[error(
        "user {0:?} does not act on members: only ServiceAccounts of the hub have names that start with \"{HUB}\""
    )]
    Reserved(String),
}

impl Passed {
    /// The user whom the member impersonates for a user of the hub. Groups that do not cross are left out.
    ///
    /// # Errors
    /// When the user has no name that may cross. The request must then be refused: without impersonation it would run
    /// with the agent's own rights.
    pub fn impersonated(&self, user: &User) -> Result<User, IdentityError> {
        if !is_safe(&user.name) {
            return Err(IdentityError::Name(user.name.clone()));
        }
        let name = if user.name.starts_with(HUB) {
            return Err(IdentityError::Reserved(user.name.clone()));
        } else if let Some(account) = user.name.strip_prefix(SERVICE_ACCOUNT) {
            service_account(account).ok_or_else(|| IdentityError::Name(user.name.clone()))?
        } else if user.name.starts_with(SYSTEM) && !self.system_users.contains(&user.name) {
            return Err(IdentityError::System(user.name.clone()));
        } else {
            user.name.clone()
        };
        let groups: BTreeSet<&String> =
            user.groups.iter().filter(|group| self.crosses(group)).take(MAX_GROUPS).collect();
        let extra = user.extra.iter().filter(|(key, _)| self.extra.contains(*key));
        let extra = extra.map(|(key, values)| (key.clone(), values.clone())).collect();
        let uid = Some(&user.uid).filter(|uid| is_safe(uid)).cloned().unwrap_or_default();
        Ok(User { name, uid, groups: groups.into_iter().cloned().collect(), extra })
    }

    fn crosses(&self, group: &str) -> bool {
        if !is_safe(group) || group.starts_with(HUB) {
            return false;
        }
        let foreign = self.all_groups && !group.starts_with(SYSTEM);
        group == AUTHENTICATED || foreign || self.groups.contains(group)
    }
}

/// `NAMESPACE:NAME` as a name on members.
fn service_account(account: &str) -> Option<String> {
    let (namespace, name) = account.split_once(':')?;
    let is_name = |text: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !text.is_empty() && text.chars().all(allowed)
    };
    (is_name(namespace) && is_name(name)).then(|| format!("{HUB}serviceaccount:{namespace}:{name}"))
}

/// Whether a name arrives unchanged as the value of a header. Servers trim white space: ` system:masters` must not
/// become `system:masters`.
fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name.trim() == name
        && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn users_cross_without_the_groups_that_mean_something_else_on_a_member() {
        let rules = Passed { all_groups: true, ..Passed::default() };
        let hub = user("jane", &["devs", "system:masters", "system:nodes", AUTHENTICATED]);
        let member = rules.impersonated(&hub).unwrap();
        assert_eq!(
            (member.name.as_str(), &*member.groups),
            ("jane", &["devs", AUTHENTICATED].map(str::to_owned)[..])
        );
        let listed = Passed { groups: names(&["ops"]), ..Passed::default() };
        let member = listed.impersonated(&user("jane", &["devs", "ops", AUTHENTICATED])).unwrap();
        assert_eq!(member.groups, ["ops", AUTHENTICATED]);
        let masters = Passed { groups: names(&["system:masters"]), ..Passed::default() };
        assert_eq!(masters.impersonated(&hub).unwrap().groups, [AUTHENTICATED, "system:masters"]);
    }

    #[test]
    fn service_accounts_of_the_hub_are_nobody_on_the_member() {
        let account = user(
            "system:serviceaccount:ci:bot",
            &["system:serviceaccounts", "system:serviceaccounts:ci"],
        );
        let member =
            Passed { all_groups: true, ..Passed::default() }.impersonated(&account).unwrap();
        assert_eq!(member.name, "atoll:hub:serviceaccount:ci:bot");
        assert_eq!(member.groups, Vec::<String>::new());
        let forged = user("atoll:hub:serviceaccount:ci:bot", &[]);
        assert!(matches!(Passed::default().impersonated(&forged), Err(IdentityError::Reserved(_))));
        for damaged in
            ["system:serviceaccount:ci", "system:serviceaccount:ci:", "system:serviceaccount:a:b:c"]
        {
            assert!(Passed::default().impersonated(&user(damaged, &[])).is_err(), "{damaged}");
        }
    }

    #[test]
    fn system_users_cross_only_where_the_member_lists_them() {
        let admin = user("system:admin", &[]);
        assert!(matches!(Passed::default().impersonated(&admin), Err(IdentityError::System(_))));
        let listed = Passed { system_users: names(&["system:admin"]), ..Passed::default() };
        assert_eq!(listed.impersonated(&admin).unwrap().name, "system:admin");
    }

    proptest! {
        #[test]
        fn whatever_the_names_are_no_system_name_arrives_that_the_member_did_not_list(
            name in "[ \ta-c:\u{a0}]{0,3}(system:|atoll:hub:|)[a-z:\u{7f}\n ]{0,12}",
            groups in proptest::collection::vec("[ \t\u{a0}]{0,2}(system:|atoll:hub:|)(masters|nodes|devs)[ \r]{0,2}", 0..5),
            all_groups: bool,
        ) {
            let rules = Passed { all_groups, ..Passed::default() };
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            if let Ok(member) = rules.impersonated(&user(&name, &groups)) {
                for text in member.groups.iter().chain([&member.name]) {
                    // What a server makes of the header.
                    let read = text.trim();
                    prop_assert_eq!(read, text.as_str());
                    prop_assert!(!read.is_empty() && !read.chars().any(char::is_control));
                    prop_assert!(!read.starts_with("system:") || read == AUTHENTICATED, "{}", read);
                }
                prop_assert!(member.groups.iter().all(|group| !group.starts_with(HUB)));
                prop_assert!(!member.name.starts_with(HUB) || name.starts_with(SERVICE_ACCOUNT));
            }
        }
    }
}
