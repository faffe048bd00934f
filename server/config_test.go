package server

import (
	"strings"
	"testing"
	"time"
)

// What is wrong is named by its flag, and all of it at once.
func TestValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"one file of TLS":           {func(c *Config) { c.TLSKey = "k" }, []string{"--tls-cert", "--tls-key", "--tls-client-ca"}},
		"two files of TLS":          {func(c *Config) { c.TLSKey, c.TLSCert = "k", "c" }, []string{"--tls-client-ca"}},
		"no time for transactions":  {func(c *Config) { c.DatabaseTimeout = 0 }, []string{"--database-timeout"}},
		"less than no time to stop": {func(c *Config) { c.ShutdownTimeout = -time.Second }, []string{"--shutdown-timeout"}},
		"no history":                {func(c *Config) { c.HistoryRetention, c.HistoryLimit = 0, 0 }, []string{"--history-retention", "--history-limit"}},
		"gRPC for everybody":        {func(c *Config) { c.GRPCAddress = "0.0.0.0:1" }, []string{"--grpc-address 0.0.0.0:1", "loopback"}},
		"HTTP for everybody":        {func(c *Config) { c.HTTPAddress = ":1" }, []string{"--http-address :1", "loopback"}},
		"no port":                   {func(c *Config) { c.GRPCAddress = "localhost" }, []string{"--grpc-address", "port"}},
	} {
		c := DefaultConfig()
		test.change(&c)
		err := c.Validate()
		for _, word := range test.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not mention %q", name, err, word)
			}
		}
	}
	for name, change := range map[string]func(*Config){
		"all files of TLS": func(c *Config) { c.TLSCert, c.TLSKey, c.TLSClientCA, c.GRPCAddress = "c", "k", "a", "0.0.0.0:1" },
		"insecure":         func(c *Config) { c.Insecure, c.HTTPAddress = true, ":1" },
		"IPv6":             func(c *Config) { c.HTTPAddress = "[::1]:1" },
		"a name":           func(c *Config) { c.HTTPAddress = "localhost:1" },
		"one try":          func(c *Config) { c.DatabaseWait = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The greeting contains no secret.
func TestGreeting(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Database, c.GRPCAddress = "mysql:me:s3cret@tcp(127.0.0.1:1)/locket", "127.0.0.1:7"
	if text := greeting(c); strings.Contains(text, "s3cret") || !strings.Contains(text, "from mysql.") || !strings.Contains(text, "--address 127.0.0.1:7") {
		t.Error(text)
	}
}
