package nodesigner

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// An attacked node creates and deletes requests without end.
func TestANodeThatAsksWithoutAnEndIsAnsweredAtTheSignersPace(t *testing.T) {
	p, start := newPace(), time.Unix(1e9, 0)
	answered := 0
	for i := range 3600 {
		if p.wait("taken", types.UID(fmt.Sprint(i)), start.Add(time.Duration(i)*time.Second)) == 0 {
			answered++
		}
	}
	if want := burst + 3600/int(every/time.Second); answered < want-1 || answered > want+1 {
		t.Errorf("%d requests of an hour are worked on, want %d", answered, want)
	}
	if p.wait("other", "a", start.Add(time.Hour)) != 0 {
		t.Error("another node waits for it")
	}
}

func TestARequestIsCountedOnce(t *testing.T) {
	p, now := newPace(), time.Unix(1e9, 0)
	for range 10 * burst {
		if p.wait("node1", "a", now) != 0 {
			t.Fatal("a request that is looked at again waits")
		}
	}
	for i := range burst - 1 {
		if p.wait("node1", types.UID(fmt.Sprint(i)), now) != 0 {
			t.Fatalf("request %d waits", i)
		}
	}
	if got := p.wait("node1", "one more", now); got != every {
		t.Errorf("one more waits %v, want %v", got, every)
	}
	if got := p.wait("node1", "one more", now.Add(every)); got != 0 {
		t.Errorf("after that it still waits %v", got)
	}
}
