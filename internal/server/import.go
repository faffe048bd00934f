package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/db/sqlitefile"
)

// importedSuffix is what the folder of the raft engine is called into which a file of the engine before it is imported.
const importedSuffix = ".data"

// ImportSQLite makes the folder FILE.data of a file of the engine before raft, if there is the file and not yet the folder, and returns the folder. It has
// everything that the file has: live claims in their order and with their versions, sessions, history. The file stays as it is.
// Whatever happens meanwhile, the folder is there as a whole or not at all. It returns db.ErrInUse while a server uses the file.
func ImportSQLite(file string) (folder string, imported bool, err error) {
	folder = file + importedSuffix
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return folder, false, err
	}
	if has, err := holds(file); err != nil || !has {
		return folder, false, err
	}
	unlock, err := sqlitefile.Lock(file)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) { // another server has imported it meanwhile
		return folder, false, err
	}
	if err := raft.Fill(folder, func(to backup.Sink) error { return sqlitefile.Dump(file, to) }); err != nil {
		return "", false, fmt.Errorf("import %s: %w", file, err)
	}
	return folder, true, nil
}

// holds reports whether there is a file, and something in it.
func holds(file string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}
