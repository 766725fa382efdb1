package downwardmetrics

import (
	"os"
	"testing"
)

func TestHostCPUTime(t *testing.T) {
	for stat, want := range map[string]CPUTime{
		"cpu  100 20 3 5000 600 0 70 0 50 0\ncpu0 1 1 1 1\n": 123,
		"cpu 1 1 1": 3,
		// 300 years of a machine with many CPUs.
		"cpu 946080000000 0 0\n": 946080000000,
		"cpu0 1 1 1\n":           0, "cpu 1 1\n": 0, "cpu 1 x 1\n": 0, "": 0, "cpu 1 99999999999999999999 1": 0,
	} {
		if got, err := HostCPUTime(stat); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", stat, got, err, want)
		}
	}
}

func TestThreadCPUTime(t *testing.T) {
	const rest = " S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 100"
	for stat, want := range map[string]CPUTime{
		"17 (CPU 0/KVM)" + rest:      300,
		"17 (a) S 9 9 (b ) )" + rest: 300,
		"17 (CPU 0/KVM) S 1 1":       0, "": 0, "17 CPU" + rest: 0,
	} {
		if got, err := ThreadCPUTime(stat); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", stat, got, err, want)
		}
	}
}

func TestHostMemory(t *testing.T) {
	for meminfo, want := range map[string]Memory{
		"MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 1 kB\nBuffers: 20 kB\nCached: 300 kB\nSwapCached: 4 kB\nSwapTotal: 50 kB\nSwapFree: 30 kB\n": {
			Free: 100, FreeVirtual: 130, Used: 580, UsedVirtual: 596},
		"MemTotal: 1000 kB\nMemFree: 100 kB\n": {Free: 100, FreeVirtual: 100, Used: 900, UsedVirtual: 900},
		// Figures of different moments.
		"MemTotal: 1000 kB\nMemFree: 900 kB\nCached: 200 kB\n": {Free: 900, FreeVirtual: 900},
	} {
		if got, err := HostMemory(meminfo); err != nil || *got != want {
			t.Errorf("%q: %+v, %v, want %+v", meminfo, got, err, want)
		}
	}
	for _, meminfo := range []string{"", "MemTotal:\n", "MemTotal: much kB\n", "Mem: 1 kB\n"} {
		if got, err := HostMemory(meminfo); err == nil {
			t.Errorf("%q: %+v", meminfo, got)
		}
	}
}

func TestHostPaging(t *testing.T) {
	if got, err := HostPaging("nr_free_pages 7\npswpin 3\npswpout 4\npswpin_more 9\n", 4096); err != nil || *got != (Paging{12, 16}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := HostPaging("nr_free_pages 7\n", 4096); err == nil {
		t.Errorf("%+v of a text without paging", got)
	}
}

// A node may have the kernel of this machine.
func TestThisKernel(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if _, err := HostCPUTime(read("/proc/stat")); err != nil {
		t.Error(err)
	}
	if _, err := ThreadCPUTime(read("/proc/thread-self/stat")); err != nil {
		t.Error(err)
	}
	if m, err := HostMemory(read("/proc/meminfo")); err != nil || m.Free == 0 || m.Used == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := HostPaging(read("/proc/vmstat"), os.Getpagesize()); err != nil {
		t.Error(err)
	}
}
