package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "write the profile anew")

// launcherProfile is the seccomp profile with which Drydock's launchers may call userfaultfd.
const launcherProfile = "../../../internal/handler/nodepostcopy/profile.json"

// TestTheProfileOfLaunchersIsTheDefaultWithUserfaultfd compares that profile with containerd's default for a container
// without capabilities, plus one system call. After an update of containerd, go test -update rewrites it.
func TestTheProfileOfLaunchersIsTheDefaultWithUserfaultfd(t *testing.T) {
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	profile := seccomp.DefaultProfile(spec)
	for _, s := range profile.Syscalls {
		for _, name := range s.Names {
			if name == "userfaultfd" {
				t.Error("containerd allows userfaultfd by itself: Drydock needs no profile for it any more")
			}
		}
	}
	profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{Names: []string{"userfaultfd"}, Action: specs.ActAllow})
	want, err := json.MarshalIndent(profile, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(launcherProfile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has, err := os.ReadFile(launcherProfile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(has, want) {
		t.Errorf("%s is not containerd's default profile with userfaultfd; go test -update writes it anew", launcherProfile)
	}
}
