package keychain_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/locket-service/locket/keychain"
)

func Example() {
	server := httptest.NewServer(&nessyServer{counts: make(map[string]int)}) // or Locket
	defer server.Close()

	kc, err := keychain.New(server.URL)
	if err != nil {
		panic(err)
	}
	defer kc.Close()
	if err := report(kc); err != nil {
		panic(err)
	}
	// Output: written
}

// report does its work while it holds a resource: even if the process hangs, nobody else does it at the same time.
func report(kc *keychain.Keychain) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for its turn
	defer cancel()
	claim, err := kc.Claim(ctx, "nightly-report", keychain.WithTTL(15*time.Second), keychain.WithUserData(map[string]string{"host": "a7"}))
	if err != nil {
		return err
	}
	for range 3 {
		if !claim.Held() { // before each step; Done is for code that waits
			return claim.Err()
		}
	}
	fmt.Println("written")
	return claim.Release(ctx)
}
