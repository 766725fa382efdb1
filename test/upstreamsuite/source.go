package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The release's module and its checksum.
const (
	module     = "kubevirt.io/kubevirt"
	release    = "v1.9.0"
	releaseSum = "h1:eauQfI39dRALNciMIQtR7UsbTUjUft5V6IBO57Icl/k="
)

// sums are the checksums of the modules that the edits add to go.mod.
//
//go:embed sums.txt
var sums []byte

// workshop is the folder that the suite is built in.
type workshop string

func (w workshop) source() string { return filepath.Join(string(w), "src") }
func (w workshop) suite() string  { return filepath.Join(string(w), "suite.test") }
func (w workshop) noted() string  { return filepath.Join(string(w), "key") }

// An up-to-date suite stays.
func (w workshop) build(ctx context.Context) error {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s\n%s", release, releaseSum, sums)
	for _, e := range edits {
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", e.file, e.old, e.new)
	}
	key := hex.EncodeToString(sum.Sum(nil))
	if noted, err := os.ReadFile(w.noted()); err == nil && string(noted) == key {
		return nil
	}
	from, err := download(ctx)
	if err != nil {
		return err
	}
	if err := w.lay(from); err != nil {
		return err
	}
	if err := w.compile(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(w.noted(), []byte(key), 0o644); err != nil {
		return fmt.Errorf("noting what the suite was built from: %w", err)
	}
	return nil
}

func download(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+release)
	// Outside of a module, go checks no go.sum, so the checksum is compared here.
	cmd.Dir, cmd.Env = os.TempDir(), append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if decodeErr := json.Unmarshal(out, &got); decodeErr != nil || got.Error != "" || err != nil {
		return "", fmt.Errorf("downloading %s %s: %w", module, release, errors.Join(err, decodeErr, errors.New(got.Error)))
	}
	if got.Sum != releaseSum {
		return "", fmt.Errorf("downloading %s %s: its files sum up to %s, and not to %s: it is another module", module, release, got.Sum, releaseSum)
	}
	return got.Dir, nil
}

func (w workshop) lay(from string) error {
	if err := os.RemoveAll(w.source()); err != nil {
		return fmt.Errorf("removing the suite's source: %w", err)
	}
	if err := copyTree(from, w.source()); err != nil {
		return fmt.Errorf("copying the suite's source: %w", err)
	}
	// Its workspace names folders that the module lacks.
	if err := errors.Join(os.Remove(filepath.Join(w.source(), "go.work")), os.Remove(filepath.Join(w.source(), "go.work.sum"))); err != nil {
		return fmt.Errorf("copying the suite's source: %w", err)
	}
	if err := apply(w.source(), edits); err != nil {
		return err
	}
	name := filepath.Join(w.source(), "go.sum")
	known, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("adding sums: %w", err)
	}
	return os.WriteFile(name, append(known, sums...), 0o644)
}

// copyTree copies a folder's files and makes the copies writable, unlike those in the module cache.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

func (w workshop) compile(ctx context.Context) error {
	suite, err := filepath.Abs(w.suite())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-vet=off", "-ldflags=-s -w", "-c", "-o", suite, "./tests")
	cmd.Dir, cmd.Env = w.source(), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compiling the suite: %w\n%s", err, strings.TrimSpace(said.String()))
	}
	return nil
}
