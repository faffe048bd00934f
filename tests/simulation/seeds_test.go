//go:build !soak

package simulation_test

// seeds is how many simulations TestSimulation has.
const seeds = 200
