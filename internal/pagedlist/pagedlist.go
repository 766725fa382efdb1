// Package pagedlist lists objects whose number and size tenants choose, with bounded memory: in pages of few bytes, of
// which only the caller's part is kept, and only a few lists at one time in a process.
//
// It asks the API server: a cache has no pods of strangers, and may be too old for filling or deleting a claim that
// somebody uses. The metadata alone does not suffice: volumes and phases decide. The pages of one list are of one state
// of the API server. It must not decide which objects count.
package pagedlist

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A list begins again when the API server no longer has the state of its first page.
const attempts = 3

// A page has as many objects as fit into pageBytes, at most largestPage. An object that does not fit has a page of its
// own: the API server stores none of more than 1.5 MiB. Of a pod, which no webhook of Drydock's judges, these may be
// 40 MiB when decoded (an empty term of a node affinity is two bytes of text, and 48 in memory).
const (
	largestPage = 100
	pageBytes   = 2 << 20
	// step divides a page that is too large, and multiplies the next one.
	step = 4
)

// bounds limit the lists of one kind at one time, in the process and in one namespace.
type bounds struct{ atOnce, oneEach int64 }

var (
	ofPods   = bounds{atOnce: 8, oneEach: 4}
	ofOthers = bounds{atOnce: 4, oneEach: 2}
)

// Collect returns the results for which keep returns true. They must be small and must not refer to the object. keep may
// see an object again, and must make no requests. empty is an empty list of the kind. The reader must ask the API server,
// by a configuration that Bound was called for.
func Collect[O client.Object, K any](ctx context.Context, reader client.Reader, empty client.ObjectList, keep func(O) (K, bool), options ...client.ListOption) ([]K, error) {
	var first client.ListOptions
	first.ApplyOptions(options)
	first.Limit = largestPage
	end, err := turnsOf(empty).begin(ctx, first.Namespace)
	if err != nil {
		return nil, fmt.Errorf("waiting for other lists to end: %w", err)
	}
	defer end()
	for attempt := 1; ; attempt++ {
		kept, err := collect(ctx, reader, empty, keep, first)
		if attempt == attempts || !apierrors.IsResourceExpired(err) {
			return kept, err
		}
	}
}

func collect[O client.Object, K any](ctx context.Context, reader client.Reader, empty client.ObjectList, keep func(O) (K, bool), o client.ListOptions) ([]K, error) {
	var kept []K
	for {
		// A decoder keeps fields of a used list that the next page lacks.
		page := empty.DeepCopyObject().(client.ObjectList)
		bounded := ctx
		if o.Limit != 1 {
			bounded = context.WithValue(ctx, roomKey{}, int64(pageBytes))
		}
		err := reader.List(bounded, page, &o)
		if errors.Is(err, errTooLarge) && o.Limit > 1 {
			o.Limit = max(1, o.Limit/step)
			continue
		}
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(object runtime.Object) error {
			part, is := keep(object.(O))
			if is {
				kept = append(kept, part)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading a page of a list: %w", err)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return kept, nil
		}
		o = next(o)
	}
}

// The API server refuses a version beside the token, which has one.
func next(o client.ListOptions) client.ListOptions {
	if o.Raw != nil {
		raw := *o.Raw
		raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
		o.Raw = &raw
	}
	o.Limit = min(o.Limit*step, largestPage)
	return o
}
