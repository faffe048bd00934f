package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// witness notes outside the folder how far its log has got: in memory (Options.Witness), which no backup has. So a start on this machine finds out that
// the folder, or the disk below it, was taken back to an older state. The note is lost when the machine restarts.
type witness struct {
	file *os.File // nil where nothing can be noted
	// entry is the last one of the log that was committed, and version the highest version of a claim.
	entry, version uint64
}

const witnessBytes = 2*8 + 4

// openWitness reads a node's note, and opens its file for later notes.
func openWitness(dir string, node uint64) (w witness, err error) {
	if dir == "" {
		return w, nil
	}
	name := filepath.Join(dir, fmt.Sprintf("locket-%x", node))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
	if err != nil {
		return w, err
	}
	info, err := file.Stat()
	if err == nil && !ownFile(info) {
		err = fmt.Errorf("%s is another user's", name)
	}
	if err != nil {
		return w, errors.Join(err, file.Close())
	}
	w.file = file
	buf := make([]byte, witnessBytes)
	if n, _ := file.ReadAt(buf, 0); n == witnessBytes && binary.LittleEndian.Uint32(buf[16:]) == crc32.Checksum(buf[:16], sumTable) {
		w.entry, w.version = binary.LittleEndian.Uint64(buf), binary.LittleEndian.Uint64(buf[8:])
	}
	return w, nil
}

// ownFile reports whether a file is one that this user has made, and no link or device.
func ownFile(info fs.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && info.Mode().IsRegular() && int(stat.Uid) == os.Geteuid()
}

// note notes an entry, and a version.
func (w *witness) note(entry, version uint64) {
	w.entry, w.version = entry, max(w.version, version)
	if w.file == nil {
		return
	}
	var buf [witnessBytes]byte
	binary.LittleEndian.PutUint64(buf[:], w.entry)
	binary.LittleEndian.PutUint64(buf[8:], w.version)
	binary.LittleEndian.PutUint32(buf[16:], crc32.Checksum(buf[:16], sumTable))
	_, _ = w.file.WriteAt(buf[:], 0) // what is not noted cannot be found missing
}

func (w *witness) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}
