package layout

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fill makes files with their folders.
func fill(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, file := range files {
		if err := WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "layout")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the test is over
	return dir
}

func made(t *testing.T, dir string) Cluster {
	t.Helper()
	c, found, err := Load("c", dir)
	if err == nil {
		c, err = c.Claim(found)
	}
	if err == nil {
		err = c.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	fill(t, c.Dir, "config/audit-policy.yaml", "images/index.json", "pki/ca.key", "nodes/node1/kubelet.yaml", "kubeconfig", "logs/x.log")
	return c
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAFolderWithOtherThingsIsRefused(t *testing.T) {
	for name, files := range map[string][]string{
		"a letter":                               {"letter.txt"},
		"a source checkout":                      {".git/HEAD", "config/crd.yaml", "images/build/main.go", "go.mod", "docs/a.md"},
		"only names that a cluster has, as well": {"config/app.yaml", "images/logo.png"},
		"a hidden file":                          {".bashrc"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			fill(t, dir, files...)
			before := list(t, dir)
			c, found, err := Load("c", dir)
			if err != nil || found {
				t.Fatal(found, err)
			}
			_, err = c.Claim(found)
			if err == nil || !strings.Contains(err.Error(), "is not empty and holds no cluster") || !strings.Contains(err.Error(), "--dir") {
				t.Errorf("the folder was taken, or the error does not say what to do: %v", err)
			}
			if err := c.Purge(); err == nil || !strings.Contains(err.Error(), "its record") {
				t.Errorf("a folder without a record was purged: %v", err)
			}
			if after := list(t, dir); !slices.Equal(after, before) {
				t.Errorf("the folder has %q, had %q", after, before)
			}
		})
	}
}

func TestFoldersThatANewClusterTakes(t *testing.T) {
	base := shortDir(t)
	fill(t, filepath.Join(base, "disk"), "lost+found/x")
	fill(t, filepath.Join(base, "interrupted"), partial+"123")
	fill(t, filepath.Join(base, "empty"), "x")
	if err := os.Remove(filepath.Join(base, "empty", "x")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"new/below", "empty", "disk", "interrupted"} {
		t.Run(dir, func(t *testing.T) {
			c := made(t, filepath.Join(base, dir))
			if again, found, err := Load("c", c.Dir); err != nil || !found || !again.Alone {
				t.Errorf("found %t, %+v, %v", found, again, err)
			}
			if err := c.Purge(); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(c.Dir); err == nil && (len(left) != 1 || left[0].Name() != "lost+found") {
				t.Errorf("purge left %v", left)
			}
		})
	}
}

func TestPurgeSparesWhatOthersHavePutThereSince(t *testing.T) {
	c := made(t, shortDir(t))
	fill(t, c.Dir, "letter.txt", "notes/a")
	if err := c.Purge(); err != nil {
		t.Fatal(err)
	}
	if left := list(t, c.Dir); !slices.Equal(left, []string{"letter.txt", "notes"}) {
		t.Errorf("left are %q", left)
	}
}

// TestAClusterAmongOtherThings: an earlier build made the cluster, which accepted any folder.
func TestAClusterAmongOtherThings(t *testing.T) {
	dir := shortDir(t)
	fill(t, dir, "go.mod", "config/crd.yaml", "images/main.go")
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(`{"name":"c","net":90,"nodes":["node1"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, found, err := Load("c", dir)
	if err != nil || !found || c.Dir != dir || c.Net != 90 {
		t.Fatalf("an earlier build's cluster is not found: %+v, %t, %v", c, found, err)
	}
	if c, err = c.Claim(found); err != nil || c.Alone {
		t.Fatalf("up: %v, alone %t", err, c.Alone)
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	if err := c.Purge(); err == nil || !strings.Contains(err.Error(), "go.mod") || !strings.Contains(err.Error(), "move away") {
		t.Errorf("purge: %v", err)
	}
	if left := list(t, dir); !slices.Equal(left, []string{"cluster.json", "config", "go.mod", "images"}) {
		t.Errorf("left are %q", left)
	}
}

// TestAnEarlierBuildsClusterAlone must get the mark at `up`, and must be purgeable without it.
func TestAnEarlierBuildsClusterAlone(t *testing.T) {
	for _, up := range []bool{false, true} {
		dir := shortDir(t)
		fill(t, dir, "config/audit-policy.yaml", "etcd/member/snap/db", "kubeconfig")
		if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(`{"name":"c","net":90,"nodes":["node1"]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		c, found, err := Load("c", dir)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		before := c.ID()
		if up {
			if c, err = c.Claim(found); err != nil || !c.Alone || c.ID() != before {
				t.Fatalf("up: %v, %+v", err, c)
			}
			if err := c.Save(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Purge(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}

// TestTheOtherWayToAFolder uses a symbolic link: both names must mean one cluster.
func TestTheOtherWayToAFolder(t *testing.T) {
	base := shortDir(t)
	fill(t, base, "real/x")
	if err := os.Remove(filepath.Join(base, "real", "x")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	c := made(t, link)
	for _, dir := range []string{link, filepath.Join(base, "real")} {
		again, found, err := Load("c", dir)
		if err != nil || !found || again.ID() != c.ID() || again.Dir != filepath.Join(base, "real") {
			t.Errorf("by %s: %+v, %t, %v", dir, again, found, err)
		}
	}
	// A link to a folder with other content is that folder.
	fill(t, base, "mine/letter.txt")
	if err := os.Symlink("mine", filepath.Join(base, "to-mine")); err != nil {
		t.Fatal(err)
	}
	other, found, err := Load("c", filepath.Join(base, "to-mine"))
	if err != nil || found {
		t.Fatal(found, err)
	}
	if _, err := other.Claim(found); err == nil {
		t.Error("a link got a cluster into a folder with other things")
	}
}

func TestACopyOfARecordOwnsNothing(t *testing.T) {
	c, project := made(t, shortDir(t)), shortDir(t)
	fill(t, project, "config/app.yaml")
	data, err := os.ReadFile(c.Record())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project, "cluster.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load("c", project); err == nil || !strings.Contains(err.Error(), "use --dir "+c.Dir) {
		t.Errorf("the copy was taken for the cluster: %v", err)
	}
	if err := (Cluster{Name: "c", Dir: project}).Purge(); err == nil {
		t.Error("a folder was purged by the copy of a record")
	}
	if left := list(t, project); !slices.Equal(left, []string{"cluster.json", "config"}) {
		t.Errorf("left are %q", left)
	}
}

func TestAFolderThatWasMovedIsFound(t *testing.T) {
	c := made(t, shortDir(t))
	to := c.Dir + "-moved"
	if err := os.Rename(c.Dir, to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(to) }) // in case the test failed
	moved, found, err := Load("c", to)
	if err != nil || !found || moved.Dir != to {
		t.Fatalf("%+v, %t, %v", moved, found, err)
	}
	if err := moved.Purge(); err != nil {
		t.Error(err)
	}
}

func TestAnotherClustersFolderIsNotPurged(t *testing.T) {
	c := made(t, shortDir(t))
	other := c
	other.Name = "other"
	if err := other.Purge(); err == nil || !strings.Contains(err.Error(), `belongs to cluster "c"`) {
		t.Errorf("purged: %v", err)
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		t.Errorf("something was deleted: %v", err)
	}
}

// TestAnInterruptedPurgeIsRepeated has a purge that ended at the record.
func TestAnInterruptedPurgeIsRepeated(t *testing.T) {
	c := made(t, shortDir(t))
	for _, part := range parts {
		if err := os.RemoveAll(filepath.Join(c.Dir, part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Purge(); err != nil {
		t.Error(err)
	}
}
