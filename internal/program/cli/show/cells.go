package show

import (
	"strconv"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models/jsonview"
)

func TtlCell(ttl *jsonview.Seconds) Cell {
	if ttl == nil {
		return Plain("")
	}
	return Plain(printable.Duration(ttl.Duration(), 2))
}

func TokenCell(token *uint64) Cell {
	if token == nil {
		return Plain("")
	}
	return Plain(strconv.FormatUint(*token, 10))
}
