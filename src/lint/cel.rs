//! The rules of a definition: CEL, as an API server evaluates it.

use std::collections::HashMap;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, Env, ExecutionError, Value as Cel};
use serde_json::Value;

/// What a rule says of a value; nothing if it holds. Rules that compare with what was before are
/// not asked.
pub(super) fn broken(rule: &Value, value: &Value) -> Option<(String, String)> {
    let text = rule["rule"].as_str()?;
    if text.contains("oldSelf") {
        return None;
    }
    let field = rule["fieldPath"].as_str().unwrap_or_default().to_owned();
    match holds(text, value) {
        Ok(true) => None,
        Ok(false) => {
            let message = rule["message"].as_str().map_or_else(|| text.to_owned(), str::to_owned);
            let what = match rule["reason"].as_str() {
                Some("FieldValueRequired") => "Required value",
                Some("FieldValueForbidden") => "Forbidden",
                _ => "Invalid value",
            };
            Some((field, format!("{what}: {message}")))
        }
        Err(error) => Some((field, format!("the rule {text:?} cannot be evaluated: {error}"))),
    }
}

fn holds(rule: &str, value: &Value) -> Result<bool, String> {
    let env = Arc::new(Env::stdlib());
    let program = env.compile(rule).map_err(|error| error.to_string())?;
    let mut context = Context::with_env(env);
    context.add_function("sum", sum).map_err(|error| error.to_string())?;
    context.add_variable_from_value("self", cel(value));
    match program.execute(&context) {
        Ok(Cel::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("it is {other:?}, neither true nor false")),
        Err(error) => Err(error.to_string()),
    }
}

/// `list.sum()`, of Kubernetes' own library.
fn sum(This(list): This<Arc<Vec<Cel>>>) -> Result<i64, ExecutionError> {
    list.iter().try_fold(0_i64, |sum, item| match item {
        Cel::Int(n) => Ok(sum.saturating_add(*n)),
        other => Err(ExecutionError::function_error("sum", format!("{other:?} is no int"))),
    })
}

/// A JSON value as CEL has it: whole numbers are signed, as their fields are.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => {
            n.as_i64().map_or_else(|| Cel::Float(n.as_f64().unwrap_or(0.0)), Cel::Int)
        }
        Value::String(s) => Cel::String(Arc::new(s.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(cel).collect())),
        Value::Object(map) => {
            let map: HashMap<Key, Cel> =
                map.iter().map(|(key, value)| (Key::from(key.as_str()), cel(value))).collect();
            Cel::Map(map.into())
        }
    }
}
