package qmptest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

type schema struct {
	Name     string   `json:"name"`
	Kind     string   `json:"meta-type"`
	RetType  string   `json:"ret-type"`
	ArgType  string   `json:"arg-type"`
	Element  string   `json:"element-type"`
	Features []string `json:"features"`
	Members  []struct {
		Name     string   `json:"name"`
		Type     string   `json:"type"`
		Features []string `json:"features"`
	} `json:"members"`
	Variants []variant `json:"variants"`
}

type variant struct {
	Type string `json:"type"`
}

const deprecation = "deprecated"

func (s schema) deprecated() bool { return slices.Contains(s.Features, deprecation) }

// Values returns the possible values of a member of a command's answer, from QEMU itself: the values of an
// enumeration, or the members of an object.
func Values(t testing.TB, program, command, member string) []string {
	t.Helper()
	byName := map[string]schema{}
	for _, entry := range schemaOf(t, program) {
		byName[entry.Name] = entry
	}
	// The schema's types have no names, so they are found by the command.
	answer := byName[byName[command].RetType]
	if answer.Element != "" {
		answer = byName[answer.Element]
	}
	var values []string
	for _, m := range answer.Members {
		if m.Name == member {
			for _, value := range byName[m.Type].Members {
				values = append(values, value.Name)
			}
		}
	}
	return values
}

func schemaOf(t testing.TB, program string) []schema {
	t.Helper()
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	client, end := startBare(t, program, ours, theirs)
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []schema
	if err := client.Execute(ctx, "query-qmp-schema", nil, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func startBare(t testing.TB, path string, ours net.Conn, theirs *os.File) (*qmp.Client, func()) {
	t.Helper()
	const fd = 3 // the first of ExtraFiles
	cmd := exec.Command(path, "-machine", "none", "-nodefaults", "-display", "none",
		"-chardev", "socket,id=m,fd="+strconv.Itoa(fd), "-mon", "chardev=m,mode=control")
	cmd.ExtraFiles = []*os.File{theirs}
	err := cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := qmp.New(ctx, ours, nil)
	if err != nil {
		kill()
		t.Fatal(err)
	}
	return client, func() {
		_ = client.Close() // QEMU is killed anyway
		kill()
	}
}
