//! The library `kube`: what scripts need to know of pod templates and quantities. Names and arguments are Karmada's.

use std::sync::Arc;

use atoll_api::quantity::Quantity;
use mlua::{Lua, MultiValue, Table, Value};
use serde_json::Value as Json;

use super::args::Args;
use super::convert::{self, Shape};
use super::{failure, stopped, type_name};
use crate::budget::Budget;
use crate::pod;

/// Steps that a function of the library takes, for the budget. Reading a pod template takes some microseconds.
const STEPS: u64 = 1000;

type Function = fn(&Lua, &Args, &Budget) -> mlua::Result<Value>;

/// The library as a table.
pub(super) fn library(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Table> {
    let kube = lua.create_table()?;
    let functions: [(&'static str, Function); 4] = [
        ("resourceAdd", resource_add),
        ("accuratePodRequirements", accurate_pod_requirements),
        ("getPodDependencies", get_pod_dependencies),
        ("getResourceQuantity", get_resource_quantity),
    ];
    for (name, function) in functions {
        let budget = Arc::clone(budget);
        let function = lua.create_function(move |lua, args: MultiValue| {
            budget.charge(STEPS).map_err(stopped)?;
            function(lua, &Args::new(name, args), &budget)
        })?;
        kube.raw_set(name, function)?;
    }
    Ok(kube)
}

fn quantity(args: &Args, at: usize) -> mlua::Result<Option<Quantity>> {
    match args.value(at) {
        Value::Nil => Ok(None),
        Value::String(_) => {
            let text = String::from_utf8_lossy(&args.text(at)?).into_owned();
            let quantity = Quantity::new(text);
            quantity.milli().map_err(|error| failure(format!("{}: {error}", args.function())))?;
            Ok(Some(quantity))
        }
        other => Err(failure(format!(
            "bad argument #{at} to {}: string expected, got {}",
            args.function(),
            type_name(other)
        ))),
    }
}

/// `resourceAdd(q1, q2, ...)`: the sum of quantities.
fn resource_add(lua: &Lua, args: &Args, _: &Budget) -> mlua::Result<Value> {
    let mut quantities = Vec::new();
    for at in 1..=args.count() {
        quantities.extend(quantity(args, at)?);
    }
    let sum = pod::sum(&quantities).map_err(|error| failure(format!("resourceAdd: {error}")))?;
    Ok(Value::String(lua.create_string(sum.as_str())?))
}

/// `getResourceQuantity(q)`: a quantity as a number.
#[allow(clippy::cast_precision_loss)]
fn get_resource_quantity(_: &Lua, args: &Args, _: &Budget) -> mlua::Result<Value> {
    args.exactly(1)?;
    let milli = match quantity(args, 1)? {
        Some(quantity) => quantity.milli().map_err(|error| failure(error.to_string()))?,
        None => 0,
    };
    if milli < 0 {
        return Err(failure("getResourceQuantity: the quantity is negative"));
    }
    let number = if milli % 1000 == 0 { (milli / 1000) as f64 } else { milli as f64 / 1000.0 };
    Ok(Value::Number(number))
}

/// A pod template as an argument.
fn template(args: &Args, budget: &Budget) -> mlua::Result<Json> {
    let table = args.value(1).clone();
    args.table(1)?;
    convert::to_json(&table, Shape::Map, &[], budget)
        .map_err(|error| failure(format!("{}: {error}", args.function())))
}

/// `accuratePodRequirements(template)`: what one pod requires.
fn accurate_pod_requirements(lua: &Lua, args: &Args, budget: &Budget) -> mlua::Result<Value> {
    args.exactly(1)?;
    let requirements = pod::requirements(&template(args, budget)?)
        .map_err(|why| failure(format!("accuratePodRequirements: {why}")))?;
    convert::to_lua(lua, &requirements, 0)
}

/// `getPodDependencies(template, namespace)`: the objects that a pod needs.
fn get_pod_dependencies(lua: &Lua, args: &Args, budget: &Budget) -> mlua::Result<Value> {
    args.exactly(2)?;
    let namespace = match args.value(2) {
        Value::Nil => b"default".to_vec(),
        _ => args.text(2)?,
    };
    let dependencies =
        pod::dependencies(&template(args, budget)?, &String::from_utf8_lossy(&namespace))
            .map_err(|why| failure(format!("getPodDependencies: {why}")))?;
    convert::to_lua(lua, &dependencies, 0)
}
