package bearer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/locket-service/locket/bearer"
)

// A replaced file is used with the next request.
func ExampleOpenFile() {
	folder, err := os.MkdirTemp("", "bearer-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "ci.credential")
	if err := os.WriteFile(file, []byte("secret-1\n"), 0o600); err != nil {
		log.Fatal(err)
	}

	source, err := bearer.OpenFile(file) // for conn.WithCredentialSource or keychain.WithCredentialSource
	if err != nil {
		log.Fatal(err)
	}
	credential, err := source.Credential(context.Background())
	fmt.Println(credential, err)

	if err := os.WriteFile(file, []byte("secret-2\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	credential, err = source.Credential(context.Background())
	fmt.Println(credential, err)

	// Output:
	// secret-1 <nil>
	// secret-2 <nil>
}
