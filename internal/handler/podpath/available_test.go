package podpath

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAvailable(t *testing.T) {
	for name, test := range map[string]struct {
		st   unix.Statfs_t
		want int64
	}{
		"a local disk":           {unix.Statfs_t{Bsize: 4096, Frsize: 4096, Bavail: 1000}, 4096000},
		"FUSE, large transfers":  {unix.Statfs_t{Bsize: 131072, Frsize: 4096, Bavail: 1000}, 4096000},
		"it is full":             {unix.Statfs_t{Bsize: 4096, Frsize: 4096}, 0},
		"no limit is known":      {unix.Statfs_t{Bsize: 4096, Frsize: 4096, Bavail: math.MaxUint64}, math.MaxInt64},
		"as much as can be said": {unix.Statfs_t{Bsize: 1, Frsize: 1, Bavail: math.MaxInt64}, math.MaxInt64},
	} {
		if got := available(&test.st); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	d := open(t, t.TempDir())
	if left, err := d.Available(); err != nil || left <= 0 {
		t.Errorf("a folder here has %d left, %v", left, err)
	}
}
