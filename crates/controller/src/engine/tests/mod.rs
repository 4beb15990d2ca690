mod chronicle;
mod corpus;
mod harness;
mod leaving;
mod life;
mod moves;
mod writes;
