//go:build !race

package simulation_test

// seeds is how many simulations TestSimulation has.
const seeds = 200
