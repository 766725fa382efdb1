package lenient

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListWatch lists and watches with inner, whose client uses Serializer. It removes placeholders: an object that
// becomes undecodable is reported as deleted.
func ListWatch(inner cache.ListerWatcherWithContext, report func(Unreadable)) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return inner.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
				if event.Type != watch.Added && event.Type != watch.Modified {
					return event, true
				}
				reason, ok := placeholderReason(event.Object)
				if !ok {
					return event, true
				}
				report(unreadable(event.Object, reason))
				// An informer that never had the object ignores the deletion.
				event.Type = watch.Deleted
				return event, true
			}), nil
		},
	}
}
