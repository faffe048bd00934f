// Package certs makes TLS configurations (TLS 1.2 and up) from PEM files, for clients and for servers. Package follow
// follows the files: after a certificate is renewed, nothing needs to be restarted. Files that cannot be read, or do
// not belong together (for example because they are being replaced one after the other), leave the last valid ones in
// use. Open connections are not affected.
package certs
