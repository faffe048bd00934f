//go:build race

package simulation_test

// seeds is how many simulations TestSimulation has. The race detector makes each of them three times as slow.
const seeds = 20
