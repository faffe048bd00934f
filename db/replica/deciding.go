package replica

import "errors"

// ErrNotDecider is returned by a server that does not decide. It has done nothing.
var ErrNotDecider = errors.New("this server does not decide")
