//! The insides of the shell. Not in the files they are about: `interleavings` compiles those a
//! second time, over atomics that work only in a model.

mod cap;
mod sleep;
