package main

import (
	"errors"
	"os"
	"strconv"
)

// mix measures REST under a mix of requests, as mix_job.go defines it, at the highest rate. It fails at the first wrong
// answer.
func (l *lab) mix() (result, error) {
	s, err := l.start("locket", "")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var found mixResult
	err = child(&found, self, "load-mix", "-address", s.http, "-clients", strconv.Itoa(l.size.clients), "-duration", (2 * l.duration).String())
	return result{rate: found.Activations, p50: found.All.P50, p99: found.All.P99}, errors.Join(err, s.recorded())
}
