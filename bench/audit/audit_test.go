package audit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const line = `{"stage":"STAGE","verb":"VERB","user":{"username":"USER"},"objectRef":{"resource":"pods","namespace":"ns","name":"p"},"requestReceivedTimestamp":"2026-01-01T00:00:01Z","responseStatus":{"code":200}}`

func TestOnlyTheComponentsRequestsCount(t *testing.T) {
	folder := t.TempDir()
	entry := func(user, verb, stage string) string {
		return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(line, "USER", user), "VERB", verb), "STAGE", stage) + "\n"
	}
	const controller = drydock + "controller"
	text := entry(controller, "create", "ResponseComplete") +
		entry(controller, "get", "ResponseComplete") +
		entry(controller, "watch", "ResponseStarted") +
		entry(controller, "watch", "ResponseComplete") + // the end of the same request
		entry("system:node:a", "create", "ResponseComplete") +
		strings.ReplaceAll(entry("admin", "create", "ResponseComplete"), `"verb"`, `"impersonatedUser":{"username":"`+drydock+`handler"},"verb"`) +
		line[:80]
	if err := os.WriteFile(filepath.Join(folder, "audit.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := Since(folder, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"   1  controller create pods",
		"   1  controller get pods",
		"   1  controller watch pods",
		"   1  handler create pods",
	}
	if got := Sums(requests); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if w, r := Count(requests, Write), Count(requests, Read); w != 2 || r != 1 {
		t.Errorf("%d writes and %d reads, want 2 and 1", w, r)
	}
	later, err := Since(folder, time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC))
	if err != nil || len(later) != 0 {
		t.Errorf("after the last request there are %v, %v", later, err)
	}
}

func TestEveryComponentHasAName(t *testing.T) {
	for user, want := range map[string]string{
		drydock + "controller": "controller",
		drydock + "apiserver":  "apiserver",
		"system:apiserver":     "kube-apiserver",
		"system:node:node1":    "kubelet",
		"system:node:node2":    "kubelet",
		"system:serviceaccount:kube-system:job-controller": "kube-system:job-controller",
		"system:kube-scheduler":                            "kube-scheduler",
		"drydock:storage":                                  "drydock:storage",
		"drydock-admin":                                    "",
	} {
		name, counts := componentOf(user)
		if counts != (want != "") || counts && name != want {
			t.Errorf("%s is %q (counts: %t), want %q", user, name, counts, want)
		}
	}
}

func TestOfAllComponentsEachWriteCountsAndPeoplesDoNot(t *testing.T) {
	folder := t.TempDir()
	entry := func(user, verb, resource string) string {
		text := strings.NewReplacer("USER", user, "VERB", verb, "STAGE", "ResponseComplete", `"pods"`, `"`+resource+`"`).Replace(line)
		return text + "\n"
	}
	text := entry("system:node:a", "patch", "events") + entry("system:node:b", "patch", "events") +
		entry("system:node:b", "update", "leases") + entry(drydock+"handler", "patch", "virtualmachineinstances") +
		entry("drydock-admin", "create", "virtualmachineinstances")
	if err := os.WriteFile(filepath.Join(folder, "audit.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := AllSince(folder, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"   2  kubelet patch events",
		"   1  handler patch virtualmachineinstances",
		"   1  kubelet update leases",
	}
	if got := Sums(requests); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if writes, leases := Count(requests, Write), Count(requests, Lease); writes != 3 || leases != 1 {
		t.Errorf("%d writes and %d leases, want 3 and 1", writes, leases)
	}
}

func TestAReviewIsNoWrite(t *testing.T) {
	if k := (Request{Verb: "create", Resource: "subjectaccessreviews"}).Kind(); k != Review {
		t.Errorf("got %s", k)
	}
}

func TestALogThatWasRotatedAwayIsNotCounted(t *testing.T) {
	folder := t.TempDir()
	for name, second := range map[string]string{"audit-1.log": "01", "audit.log": "05"} {
		text := strings.ReplaceAll(line, "00:00:01Z", "00:00:"+second+"Z") + "\n"
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Since(folder, time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)); err != nil {
		t.Errorf("the older file reaches back: %v", err)
	}
	if _, err := Since(folder, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); !errors.Is(err, ErrRotated) {
		t.Errorf("no file reaches back, got %v", err)
	}
}
