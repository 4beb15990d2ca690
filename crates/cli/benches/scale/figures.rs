//! The figures of one federation, and how they grow.

/// How a figure should grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// With the number of members and bindings.
    WithSize,
    /// Not at all: it is already one for each binding or object.
    Flat,
}

#[derive(Debug)]
struct Figure {
    name: &'static str,
    value: f64,
    growth: Growth,
}

/// Figures in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Prints a figure and keeps it.
    pub(crate) fn add(&mut self, name: &'static str, value: f64, unit: &str, growth: Growth) {
        println!("  {name:<58} {value:>10.3} {unit}");
        self.0.push(Figure { name, value, growth });
    }
}

/// Prints by how much each figure grew, divided by how much it should have grown: 1.0 is proportional to the size.
pub(crate) fn slopes(small: &Figures, large: &Figures, times: f64) {
    for (before, after) in small.0.iter().zip(&large.0) {
        let expected = match before.growth {
            Growth::WithSize => times,
            Growth::Flat => 1.0,
        };
        match before.value > 0.0 {
            true => {
                println!("  {:<58} {:>10.2}", before.name, after.value / before.value / expected);
            }
            false => println!("  {:<58} {:>10}", before.name, "-"),
        }
    }
}
