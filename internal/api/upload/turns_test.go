package upload

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestWaitingUploadsAreBounded(t *testing.T) {
	var all turns
	var stops []func()
	wait := func(namespace string) (context.Context, error) {
		ctx, stop, err := all.wait(t.Context(), namespace)
		if err == nil {
			stops = append(stops, stop)
		}
		return ctx, err
	}
	for range maxWaitingOfNamespace {
		_, err := wait("shop")
		must(t, err)
	}
	if _, err := wait("shop"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more of the namespace: %v", err)
	}
	for i := range maxWaiting - maxWaitingOfNamespace {
		_, err := wait(strconv.Itoa(i))
		must(t, err)
	}
	for range maxWaitingOfNamespace - 1 { // they take the places of the shop
		_, err := wait("another")
		if n := len(all.waiting["shop"]) + len(all.waiting["another"]); n != maxWaitingOfNamespace {
			t.Errorf("%d uploads of both namespaces wait, want %d (the last: %v)", n, maxWaitingOfNamespace, err)
		}
	}
	if shop, another := len(all.waiting["shop"]), len(all.waiting["another"]); shop != another {
		t.Errorf("%d uploads of the namespace that came first wait, and %d of the other", shop, another)
	}
	for _, stop := range stops {
		stop()
	}
	if len(all.waiting) != 0 {
		t.Errorf("left are %v", all.waiting)
	}
	_, err := wait("shop")
	must(t, err)
}

// Four namespaces take all places. A fifth one gets one of them, and the upload that loses it is refused at once.
func TestFewNamespacesDoNotKeepOthersFromUploading(t *testing.T) {
	var all turns
	var waiting []context.Context
	for i := range maxWaiting {
		ctx, stop, err := all.wait(t.Context(), strconv.Itoa(i%(maxWaiting/maxWaitingOfNamespace)))
		must(t, err)
		defer stop()
		waiting = append(waiting, ctx)
	}
	_, stop, err := all.wait(t.Context(), "fifth")
	must(t, err)
	stop()
	lost := 0
	for _, ctx := range waiting {
		if ctx.Err() == nil {
			continue
		}
		if lost++; !apierrors.IsTooManyRequests(context.Cause(ctx)) {
			t.Errorf("the upload that lost its place: %v", context.Cause(ctx))
		}
	}
	if lost != 1 {
		t.Errorf("%d uploads lost their places to one", lost)
	}
	if n := len(slices.Concat(slices.Collect(maps.Values(all.waiting))...)); n != maxWaiting-1 {
		t.Errorf("%d uploads wait, want %d", n, maxWaiting-1)
	}
}

// An upload that waits loses its place to one of another namespace.
func TestAnUploadThatLosesItsPlaceIsToldSo(t *testing.T) {
	s := newScene(t)
	s.claim("u-1", marked)
	waits := make(chan struct{})
	s.proxy.cluster = &announced{limited: s.count(), waits: waits}
	s.proxy.patience = time.Hour
	for range maxWaitingOfNamespace - 1 {
		_, stop, err := s.proxy.turns.wait(t.Context(), "ns")
		must(t, err)
		defer stop()
	}
	for i := range maxWaiting - maxWaitingOfNamespace {
		_, stop, err := s.proxy.turns.wait(t.Context(), strconv.Itoa(i))
		must(t, err)
		defer stop()
	}
	token := s.goodToken()
	go func() {
		<-waits
		if _, stop, err := s.proxy.turns.wait(t.Context(), "another"); err != nil {
			t.Error(err)
		} else {
			stop()
		}
	}()
	if code, text := s.send(http.MethodPost, "/v1beta1/upload", token, nil); code != http.StatusTooManyRequests || !strings.Contains(text, "8 uploads to the namespace ns and 32 in all wait") {
		t.Errorf("%d %s", code, text)
	}
}
