package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	watchLimit = "/proc/sys/fs/inotify/max_user_instances"
	// A cluster of two nodes has some 35 inotify instances, and the kernel's default limit is 128 per user.
	// Programs above it fail in strange ways, such as kubectl logs -f or a device plugin.
	watchesWanted = 1024
)

func raiseWatchLimit() error {
	data, err := os.ReadFile(watchLimit)
	if err != nil {
		return fmt.Errorf("reading the limit of inotify instances: %w", err)
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && now >= watchesWanted {
		return nil
	}
	if err := os.WriteFile(watchLimit, []byte(strconv.Itoa(watchesWanted)), 0o644); err != nil {
		return fmt.Errorf("raising the limit of inotify instances: %w", err)
	}
	return nil
}
