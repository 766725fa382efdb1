package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/images/debian"
)

func TestAConfigurationThatLacksWhatWasAskedForIsRefused(t *testing.T) {
	const wanted = "# a comment\nCONFIG_A=y\nCONFIG_B=\"text\"\n"
	if err := checkConfig([]byte(wanted), []byte("CONFIG_A=y\nCONFIG_B=\"text\"\nCONFIG_C=y\n")); err != nil {
		t.Error(err)
	}
	err := checkConfig([]byte(wanted), []byte("# CONFIG_A is not set\nCONFIG_B=\"text\"\n"))
	if err == nil || !strings.Contains(err.Error(), "has not CONFIG_A=y:") {
		t.Errorf("without CONFIG_A: %v", err)
	}
}

func TestObjtoolIsLeftOut(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "arch/x86/Kconfig")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("\tselect HAVE_NMI\n\tselect HAVE_OBJTOOL\t\tif X86_64\n\tselect HAVE_JUMP_LABEL_HACK\tif HAVE_OBJTOOL\n")
	if err := withoutObjtool(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if want := "\tselect HAVE_NMI\n\tselect HAVE_JUMP_LABEL_HACK\tif HAVE_OBJTOOL\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if err := withoutObjtool(folder); err == nil {
		t.Error("a source that does not select it is taken")
	}
}

func TestTheKeyIsOfTheVersionAndTheFileIsFound(t *testing.T) {
	root := t.TempDir()
	tree := debian.Tree{Root: root}
	if _, err := Build(t.Context(), root, tree); err == nil {
		t.Error("a tree without a source is taken")
	}
	for name, text := range map[string]string{
		"usr/src/linux-source-6.1.tar.xz": "",
		"var/lib/dpkg/unpacked":           "package linux-source-6.1 6.1.1-1 all\n./usr/src/linux-source-6.1.tar.xz\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, version, err := find(tree)
	if err != nil || version != "6.1.1-1" {
		t.Fatalf("the version is %q, %v", version, err)
	}
	key, err := buildKey(version)
	if err != nil {
		t.Fatal(err)
	}
	other, err := buildKey("6.1.2-1")
	if err != nil || key == other {
		t.Errorf("the same key %s for two versions, %v", key, err)
	}
	file := filepath.Join(root, "kernel-"+key, "vmlinuz")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Build(t.Context(), root, tree)
	if err != nil || got != (Kernel{File: file, Key: key}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
