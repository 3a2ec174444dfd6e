"""Metal kernels on a processor: the bodies given to `mx.fast.metal_kernel`, compiled by g++ and run thread by thread.

`emulated(order)` puts the emulator in the place of `mx.fast.metal_kernel`, so that the product's own launch code runs.
It judges values, bits and the rules of the language that a C++ compiler does not know. It cannot judge speed, nor the
numerics of real hardware: what Metal leaves open is varied by `Order`, and a kernel must not depend on it.
"""
