package cli

import (
	"fmt"
	"os"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/program/cli/rewrite"
)

// addEntry adds an entry at the end of a credentials file, which nobody else may read or write.
func addEntry(file, entry string) error {
	return rewrite.File("the credentials file", file, func(text []byte, info os.FileInfo) ([]byte, error) {
		if info != nil {
			if err := follow.CheckPrivate(file, info); err != nil {
				return nil, err
			}
		}
		switch {
		case len(text) == 0:
			text = []byte("credentials:\n")
		case text[len(text)-1] != '\n':
			text = append(text, '\n')
		}
		text = append(text, entry...)
		if _, err := auth.ParseCredentials(text); err != nil {
			return nil, fmt.Errorf("%s: the entry cannot be added at its end; add it by hand (%w)", file, err)
		}
		return text, nil
	})
}
