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

// importedSuffix is the end of the name of the folder into which a SQLite file of an older version is imported.
const importedSuffix = ".data"

// ImportSQLite imports a SQLite file of an older version into the folder FILE.data, unless this folder holds something, and
// returns the folder. The folder gets everything in the file: live claims in their order and with their versions,
// sessions, history. The file is not changed. After a crash the folder is complete, or vacant. It returns db.ErrInUse
// while a server uses the file.
func ImportSQLite(file string) (folder string, imported bool, err error) {
	folder = file + importedSuffix
	if vacant, err := raft.Vacant(folder); !vacant {
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
	if vacant, err := raft.Vacant(folder); !vacant { // another server has imported it meanwhile
		return folder, false, err
	}
	if err := raft.Fill(folder, func(to backup.Sink) error { return sqlitefile.Dump(file, to) }); err != nil {
		return "", false, fmt.Errorf("import %s: %w", file, err)
	}
	return folder, true, nil
}

// holds reports whether a file exists and is not empty.
func holds(file string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}
