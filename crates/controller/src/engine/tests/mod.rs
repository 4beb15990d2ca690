mod chronicle;
mod harness;
mod leaving;
mod life;
mod moves;
mod writes;
