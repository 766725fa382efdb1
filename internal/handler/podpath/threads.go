package podpath

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxThreads bounds the search: a hostile process may have any number of threads.
const maxThreads = 1024

// ThreadsOf returns a process's threads on the node, by their numbers in its own PID namespace. No other process's count,
// whatever it says. It is empty if the process has ended.
func ThreadsOf(pid int) map[int]int {
	found := map[int]int{}
	process := filepath.Join("/proc", strconv.Itoa(pid), "task")
	folder, err := os.Open(process)
	if err != nil {
		return found
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(maxThreads) // an error leaves the names read before
	for _, name := range names {
		outer, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if inner, ok := innerNumber(filepath.Join(process, name, "status")); ok {
			found[inner] = outer
		}
	}
	return found
}

// innerNumber returns a thread's number in its own namespace: the last of the line NSpid.
func innerNumber(status string) (int, bool) {
	file, err := os.Open(status)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		numbers, is := strings.CutPrefix(lines.Text(), "NSpid:")
		if !is {
			continue
		}
		fields := strings.Fields(numbers)
		if len(fields) == 0 {
			return 0, false
		}
		inner, err := strconv.Atoi(fields[len(fields)-1])
		return inner, err == nil
	}
	return 0, false
}
