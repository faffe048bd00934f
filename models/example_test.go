package models_test

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// collision is the error of a Lock that finds another holder, as a client with a connection of its own gets it.
func collision() error {
	return models.WithInfo(status.Convert(models.ErrLockCollision), models.ReasonLockCollision, map[string]string{"holder": "me", "token": "1795283222123457"})
}

// Connections of package lock call FromWire themselves.
func ExampleFromWire() {
	err := collision()
	fmt.Println(errors.Is(err, models.ErrLockCollision), errors.Is(models.FromWire(err), models.ErrLockCollision))

	// Output: false true
}

// The reason of an error says more than its code.
func ExampleReasonOf() {
	err := collision()
	switch models.ReasonOf(err) {
	case models.ReasonLockCollision:
		fmt.Println("held by", models.ErrorInfoOf(err).GetMetadata()["holder"])
	case models.ReasonQuotaExceeded:
		fmt.Println("try again later")
	}

	// Output: held by me
}
