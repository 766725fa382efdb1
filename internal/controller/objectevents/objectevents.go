// Package objectevents asks the API server for events about an object.
//
// It owns the question; which event counts is package objectevent's rule. Events are
// not watched: they are many, and are needed only for what does not go on.
package objectevents

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/objectevent"
)

// most bounds how many events about one object are read: whoever may make events in a namespace may make any number.
const most = 500

// NewestWarning returns the newest warning about an object, nil when there is none. The
// reader must ask the API server itself.
func NewestWarning(ctx context.Context, reader client.Reader, about metav1.Object) (*objectevent.Warning, error) {
	var list corev1.EventList
	err := reader.List(ctx, &list, client.InNamespace(about.GetNamespace()), client.Limit(most),
		client.MatchingFields(objectevent.WarningsAbout(about.GetUID())))
	if err != nil {
		return nil, fmt.Errorf("asking for the events of %s/%s: %w", about.GetNamespace(), about.GetName(), err)
	}
	return objectevent.NewestWarning(list.Items), nil
}
