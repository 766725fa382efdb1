package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const compressed = ".xz"

// PlainModule returns the name of a kernel module's file when it is not compressed.
func PlainModule(file string) string { return strings.TrimSuffix(file, compressed) }

// FindModule returns the file of a kernel module on this machine, which may be compressed.
func FindModule(plain string) string {
	if _, err := os.Lstat(plain); err != nil {
		return plain + compressed
	}
	return plain
}

// ReadModule returns a kernel module, which newer releases of Debian compress.
func ReadModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, compressed) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a kernel module: %w", err)
		}
		return data, nil
	}
	data, err := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--", file).Output()
	if err != nil {
		return nil, fmt.Errorf("decompressing the kernel module %s: %w", file, err)
	}
	return data, nil
}
