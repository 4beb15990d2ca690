mod harness;
mod life;
mod moves;
mod writes;
