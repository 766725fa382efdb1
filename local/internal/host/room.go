package host

import (
	"fmt"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Need is the disk space for one purpose.
type Need struct {
	Dir   string
	Bytes uint64
	// For is a message's beginning: "Go modules take".
	For string
}

type volume struct {
	device uint64
	free   uint64
}

// LittleSpace returns a message for each file system with too little space for its needs. A missing folder counts
// for its nearest parent.
func LittleSpace(needs []Need) ([]string, error) {
	return littleSpace(needs, func(dir string) (volume, error) {
		dir = existing(dir)
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return volume{}, fmt.Errorf("looking at %s: %w", dir, err)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return volume{}, fmt.Errorf("looking how much space is left in %s: %w", dir, err)
		}
		return volume{device: st.Dev, free: fs.Bavail * uint64(fs.Bsize)}, nil
	})
}

func littleSpace(needs []Need, look func(dir string) (volume, error)) ([]string, error) {
	wanted := map[uint64]uint64{}
	uses := map[uint64][]string{}
	var volumes []volume
	for _, need := range needs {
		v, err := look(need.Dir)
		if err != nil {
			return nil, err
		}
		if wanted[v.device] == 0 {
			volumes = append(volumes, v)
		}
		wanted[v.device] += need.Bytes
		uses[v.device] = append(uses[v.device], fmt.Sprintf("%s about %s in %s", need.For, gib(need.Bytes), need.Dir))
	}
	var little []string
	for _, v := range volumes {
		if v.free < wanted[v.device] {
			little = append(little, fmt.Sprintf("only %s of disk space are free, %s are needed: %s; make room, or choose other folders",
				gib(v.free), gib(wanted[v.device]), strings.Join(uses[v.device], ", ")))
		}
	}
	return little, nil
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// Memory includes swap, in bytes.
type Memory struct{ Total, Available uint64 }

// ReadMemory reads the machine's memory.
func ReadMemory() (Memory, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Memory{}, fmt.Errorf("asking how much memory there is: %w", err)
	}
	return memoryIn(fs)
}

func memoryIn(fs procfs.FS) (Memory, error) {
	info, err := fs.Meminfo()
	if err != nil {
		return Memory{}, fmt.Errorf("asking how much memory there is: %w", err)
	}
	bytes := func(figure *uint64) uint64 {
		if figure == nil {
			return 0
		}
		return *figure
	}
	if bytes(info.MemTotalBytes) == 0 {
		return Memory{}, fmt.Errorf("asking how much memory there is: /proc/meminfo has no MemTotal")
	}
	return Memory{
		Total:     bytes(info.MemTotalBytes) + bytes(info.SwapTotalBytes),
		Available: bytes(info.MemAvailableBytes) + bytes(info.SwapFreeBytes),
	}, nil
}

// Little compares the memory with a need. impossible is the message if the machine has too little,
// tight if other programs must end first.
func (m Memory) Little(need uint64, what string) (impossible, tight []string) {
	switch {
	case m.Total < need:
		impossible = []string{fmt.Sprintf("the machine has %s of memory with swap, and %s takes %s: give it more, or add swap", gib(m.Total), what, gib(need))}
	case m.Available < need:
		tight = []string{fmt.Sprintf("only %s of memory are free, and %s takes %s: end other programs, or it may be slow or be killed", gib(m.Available), what, gib(need))}
	}
	return impossible, tight
}
