//! How many items a difference needs.

use super::normal_quantile;

/// The items that are needed to see a difference of `effect` in a paired, two-sided test at level
/// `alpha` with this power, when the differences of items have the standard deviation `spread`.
#[must_use]
pub fn items_needed(effect: f64, spread: f64, alpha: f64, power: f64) -> usize {
    let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power);
    let items = (z * spread / effect).powi(2).ceil();
    if items.is_finite() {
        items as usize
    } else {
        usize::MAX
    }
}

/// The smallest difference that `items` items can show, under the same terms.
#[must_use]
pub fn detectable(items: usize, spread: f64, alpha: f64, power: f64) -> f64 {
    let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(power);
    z * spread / (items.max(1) as f64).sqrt()
}
