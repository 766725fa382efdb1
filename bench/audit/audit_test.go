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
		entry(controller, "watch", "ResponseComplete") + // the same one's end
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
