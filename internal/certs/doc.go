// Package certs makes TLS configurations (TLS 1.2 and up) from PEM files, for clients and for
// servers. Package follow follows the files: whoever renews a certificate replaces its files, and
// nothing needs to be restarted. Files that cannot be read, or do not belong together (yet, because
// they are being replaced one after the other), leave the last good ones in use. Connections
// that exist are not affected.
package certs
