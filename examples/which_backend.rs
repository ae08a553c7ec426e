//! Says which backend runs and why, in its first line, and then what there is to know about the system.
//!
//!     cargo run --example which_backend
//!     ROTOR_BACKEND=epoll cargo run --example which_backend

use std::process::ExitCode;

use rotor::runtime::{CreateError, Runtime};

fn tell() -> Result<(), CreateError> {
    let runtime = Runtime::new()?;
    println!("{}", rotor::backend()?);
    print!("{}", runtime.block_on(async { rotor::doctor() }));
    Ok(())
}

fn main() -> ExitCode {
    match tell() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
