// Command prerequisites prints one line for each thing that the machine lacks for building, running or testing
// Drydock. It must not install anything:
//
//	go run ./cmd/prerequisites build run
//
// It links little, because it is built before anything large.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/prerequisites"
)

type findings struct{ missing, warnings []string }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "prerequisites: say what for: some of build, run, test, long, web")
		os.Exit(2)
	}
	var found findings
	purposes := os.Args[1:]
	if err := found.look(purposes); err != nil {
		found.missing = append(found.missing, err.Error())
	}
	for _, text := range found.warnings {
		fmt.Printf("warning: %s\n", text)
	}
	for _, text := range found.missing {
		fmt.Printf("missing: %s\n", text)
	}
	if len(found.missing) > 0 {
		os.Exit(1)
	}
}

func (f *findings) look(purposes []string) error {
	var wanted []prerequisites.Purpose
	for _, purpose := range purposes {
		wanted = append(wanted, prerequisites.Purpose(purpose))
	}
	for _, p := range prerequisites.Missing(wanted...) {
		f.missing = append(f.missing, p.String()+" is not installed")
	}
	if slices.Contains(purposes, "build") {
		if err := f.forBuilding(); err != nil {
			return err
		}
	}
	if slices.Contains(purposes, "run") || slices.Contains(purposes, "test") {
		return f.forRunning()
	}
	return nil
}

// The resources of a build from nothing, with some margin: measured were 1.2 GB of modules, 3.9 GB
// of compiled packages and 1.9 GB of products. Together they are the disk space in
// README.md.
const (
	downloads     = 3 << 29
	compiled      = 9 << 29
	products      = 2 << 30
	buildMemory   = 3 << 30
	clusterMemory = 2 << 30
)

// forBuilding checks memory and disk space. It skips the disk if there are programs already: an
// earlier build has used most of the space.
func (f *findings) forBuilding() error {
	if err := f.memory(buildMemory, "building"); err != nil {
		return err
	}
	repository, err := filepath.Abs("..")
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	if _, err := os.Stat(filepath.Join(repository, "bin", "drydock")); err == nil {
		return nil
	}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("asking Go for its folders: %w", err)
	}
	folders := strings.Fields(string(out))
	if len(folders) != 2 {
		return fmt.Errorf("asking Go for its folders: it answers %q, not two names without spaces", out)
	}
	little, err := host.LittleSpace([]host.Need{
		{Dir: folders[0], Bytes: downloads, For: "Go modules take"},
		{Dir: folders[1], Bytes: compiled, For: "compiled packages take"},
		{Dir: repository, Bytes: products, For: "programs and images take"},
		{Dir: clusterDir(), Bytes: host.ClusterSpace, For: "a cluster takes"},
	})
	f.missing = append(f.missing, little...)
	return err
}

func (f *findings) memory(need uint64, what string) error {
	memory, err := host.ReadMemory()
	if err != nil {
		return err
	}
	impossible, tight := memory.Little(need, what)
	f.missing, f.warnings = append(f.missing, impossible...), append(f.warnings, tight...)
	return nil
}

// look has checked the programs.
func (f *findings) forRunning() error {
	if err := f.memory(clusterMemory, "a cluster with a guest"); err != nil {
		return err
	}
	little, err := host.LittleSpace([]host.Need{{Dir: clusterDir(), Bytes: host.ClusterSpace, For: "a cluster takes"}})
	if err != nil {
		return err
	}
	f.warnings = append(f.warnings, little...)
	facts, err := host.Gather()
	if err != nil {
		return err
	}
	facts.Absent = nil // look has reported them
	f.missing = append(f.missing, facts.Missing()...)
	f.missing = append(f.missing, host.TakenPorts()...)
	if !facts.Root {
		return nil
	}
	f.missing = append(f.missing, host.Try(clusterDir())...)
	c, found, err := layout.Load(fromEnv("DRYDOCK_NAME", layout.DefaultName), clusterDir())
	if err != nil {
		return err
	}
	_, err = network.ChooseSubnet(c, found)
	return err
}

func clusterDir() string { return fromEnv("DRYDOCK_DIR", layout.DefaultDir) }

func fromEnv(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}
