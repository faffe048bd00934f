package lock_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/locket-service/locket/lock/fencing"
)

// The protected target is behind HTTP: holders send their token in a header.
func ExampleGuard_http() {
	var guard fencing.Guard
	server := httptest.NewServer(fenced(&guard, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	defer server.Close()

	for _, token := range []string{"33", "34", "33", ""} {
		request, err := http.NewRequest(http.MethodPut, server.URL, strings.NewReader("n = 1"))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Fencing-Token", token)
		response, err := server.Client().Do(request)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(response.Status)
	}

	// Output:
	// 204 No Content
	// 204 No Content
	// 412 Precondition Failed
	// 400 Bad Request
}

// fenced refuses requests whose token is lower than one before. It reads all of a request
// before the guard lets it in, and nobody else meanwhile: its sender may be paused just then.
func fenced(guard *fencing.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := strconv.ParseUint(r.Header.Get("Fencing-Token"), 10, 64)
		if err != nil || token == 0 {
			http.Error(w, "Fencing-Token must be a positive number", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		err = guard.Do(token, func() error {
			next.ServeHTTP(w, r)
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
		}
	})
}
