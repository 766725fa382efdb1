package volume

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The working folder of a child of TestKilledAtAnyMoment.
const childFolder = "DRYDOCK_TEST_VOLUMES"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		work(testStore(dir))
	}
	os.Exit(m.Run())
}

var content = bytes.Repeat([]byte("drydock\n"), 1<<17)

func work(s Store) {
	ctx := context.Background()
	from, err := s.FromVolume("node1.origin")
	for i := 0; err == nil; i++ {
		var made, snapshot Volume
		name := fmt.Sprint("v", i%4)
		made, err = s.Create(ctx, Volume{Name: name, Disk: "node2", Kind: Block, Bytes: from.Bytes}, from)
		if err == nil {
			snapshot, err = s.CreateSnapshot(ctx, "s"+name, made)
		}
		if err == nil && i%2 == 1 {
			if err = s.Delete(made.ID()); err == nil {
				err = s.DeleteSnapshot(snapshot.ID())
			}
		}
		fmt.Println("round", i)
	}
	fmt.Println("failed:", err)
	os.Exit(1)
}

// Every volume that exists after a kill must be complete, and the rest be swept.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	s := testStore(dir)
	mustCreate(t, s, Volume{Name: "origin", Disk: "node1", Kind: Block, Bytes: int64(len(content))}, nil)
	if err := os.WriteFile(Data(filepath.Join(dir, "node1"), "origin"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	whole, swept := 0, 0
	// On a busy machine the child's start takes longer than the first kills allow: from the 25th on they come later and
	// later.
	late := 40 * time.Millisecond
	for deadline, i := time.Now().Add(4*time.Minute), 1; i <= 25 || (whole == 0 || swept == 0) && time.Now().Before(deadline); i++ {
		if i%25 == 0 {
			late *= 2
		}
		var out bytes.Buffer
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childFolder+"="+dir)
		child.Stdout, child.Stderr = &out, &out
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Millisecond + rand.N(late)) // the test varies the moment
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
		if strings.Contains(out.String(), "failed") {
			t.Fatalf("the process that goes on after a kill: %s", out.String())
		}
		w, l := inspect(t, dir)
		whole, swept = whole+w, swept+l
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		if _, left := inspect(t, dir); left > 0 {
			t.Fatalf("%d folders are left after the sweep", left)
		}
	}
	t.Logf("found %d whole volumes and snapshots, swept %d others", whole, swept)
	if whole == 0 || swept == 0 {
		t.Error("no kill came in the middle: the test proves nothing")
	}
}

func inspect(t *testing.T, dir string) (whole, left int) {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(dir, "node2", "*", "*"))
	hidden, hiddenErr := filepath.Glob(filepath.Join(dir, "node2", "*", ".*-*"))
	if err != nil || hiddenErr != nil {
		t.Fatal(err, hiddenErr)
	}
	for _, entry := range entries {
		if strings.HasPrefix(filepath.Base(entry), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(entry, dataName))
		if err != nil || !bytes.Equal(data, content) {
			t.Errorf("%s has %d bytes of %d: %v", entry, len(data), len(content), err)
		}
		if _, err := readRecord(entry); err != nil {
			t.Error(err)
		}
		whole++
	}
	return whole, len(hidden)
}
