package target

import (
	"bytes"
	"fmt"
)

// grain is the unit in which zeros are detected: a block of most file systems.
const grain = 4096

var zeros = make([]byte, 64*grain)

// WriteAt writes the non-zero grains: the rest already reads as zero.
func (d *Disk) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > d.size {
		return 0, fmt.Errorf("writing %d bytes at %d: the disk ends at %d", len(p), at, d.size)
	}
	for done := 0; done < len(p); {
		skip, keep := nextData(p[done:], at+int64(done))
		done += skip
		if keep == 0 {
			continue
		}
		if n, err := d.file.WriteAt(p[done:done+keep], at+int64(done)); err != nil {
			return done + n, d.failed("writing the disk", err)
		}
		done += keep
	}
	return len(p), nil
}

// nextData returns the number of leading zero bytes of p, which is at an offset of the disk, and of the bytes to
// write after them, in whole grains of the disk.
func nextData(p []byte, at int64) (skip, keep int) {
	for skip < len(p) && zero(p[skip:skip+piece(p, at, skip)]) {
		skip += piece(p, at, skip)
	}
	for skip+keep < len(p) {
		n := piece(p, at, skip+keep)
		if zero(p[skip+keep : skip+keep+n]) {
			break
		}
		keep += n
	}
	return skip, keep
}

// piece is the rest of p's grain at index.
func piece(p []byte, at int64, index int) int {
	return min(grain-int((at+int64(index))%grain), len(p)-index)
}

func zero(p []byte) bool { return bytes.Equal(p, zeros[:len(p)]) }
