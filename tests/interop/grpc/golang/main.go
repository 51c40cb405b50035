// Does with the official client what lines of JSON on standard input say; see programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	patience = 300 * time.Second
	await    = 5 * time.Second
)

type job struct {
	Op, Endpoint, Topic, Group, AccessKey, SecretKey string
	TLS                                              bool `json:"tls"`
	Count                                            int
}

type described struct {
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      string            `json:"group"`
	Attempt    int32             `json:"attempt"`
}

type object = map[string]any

var (
	heldProducer rmq.Producer
	heldConsumer rmq.SimpleConsumer
	heldPush     rmq.PushConsumer
)

func main() {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		result, err := run(input.Bytes())
		answer := object{"result": result}
		if err != nil {
			answer = object{"error": err.Error()}
		}
		line, _ := json.Marshal(answer)
		fmt.Println(string(line))
	}
}

func run(line []byte) (result any, err error) {
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, err
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panicked: %v", panicked)
		}
	}()
	rmq.EnableSsl = j.TLS
	operation, known := map[string]func(*job) (any, error){
		"send": send, "receive": receive, "normal": normal, "fifo": fifo, "delay": delay,
		"transaction": transaction, "push": push, "invisible": invisible, "hold": hold,
		"resume": resume,
	}[j.Op]
	if !known {
		return nil, fmt.Errorf("no operation %q", j.Op)
	}
	return operation(&j)
}

func (j *job) config() *rmq.Config {
	return &rmq.Config{
		Endpoint:      j.Endpoint,
		ConsumerGroup: j.Group,
		Credentials: &credentials.SessionCredentials{
			AccessKey: j.AccessKey, AccessSecret: j.SecretKey,
		},
	}
}

func (j *job) producer(options ...rmq.ProducerOption) (rmq.Producer, error) {
	made, err := rmq.NewProducer(j.config(), append(options, rmq.WithTopics(j.Topic))...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func (j *job) subscriptions() map[string]*rmq.FilterExpression {
	return map[string]*rmq.FilterExpression{j.Topic: rmq.SUB_ALL}
}

func (j *job) consumer() (rmq.SimpleConsumer, error) {
	made, err := rmq.NewSimpleConsumer(j.config(),
		rmq.WithSimpleAwaitDuration(await),
		rmq.WithSimpleSubscriptionExpressions(j.subscriptions()))
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

// both starts a producer and a consumer, which the caller stops.
func (j *job) both(options ...rmq.ProducerOption) (rmq.Producer, rmq.SimpleConsumer, func(), error) {
	sender, err := j.producer(options...)
	if err != nil {
		return nil, nil, nil, err
	}
	receiver, err := j.consumer()
	if err != nil {
		return nil, nil, nil, err
	}
	return sender, receiver, func() {
		_ = sender.GracefulStop()
		_ = receiver.GracefulStop()
	}, nil
}

func (j *job) message(body string) *rmq.Message {
	return &rmq.Message{Topic: j.Topic, Body: []byte(body)}
}

func describe(view *rmq.MessageView) described {
	one := described{
		Body: string(view.GetBody()), Keys: []string{}, Properties: map[string]string{},
		Attempt: view.GetDeliveryAttempt(),
	}
	one.Keys = append(one.Keys, view.GetKeys()...)
	maps.Copy(one.Properties, view.GetProperties())
	if view.GetTag() != nil {
		one.Tag = *view.GetTag()
	}
	if view.GetMessageGroup() != nil {
		one.Group = *view.GetMessageGroup()
	}
	return one
}

func take(receiver rmq.SimpleConsumer, count int) ([]described, error) {
	taken := []described{}
	deadline := time.Now().Add(patience)
	var last error
	for len(taken) < count {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("only %v, last: %v", taken, last)
		}
		// That nothing came is an error here.
		var views []*rmq.MessageView
		views, last = receiver.Receive(context.Background(), 16, 15*time.Second)
		for _, view := range views {
			taken = append(taken, describe(view))
			if err := receiver.Ack(context.Background(), view); err != nil {
				return nil, err
			}
		}
	}
	return taken, nil
}

func takeOne(receiver rmq.SimpleConsumer, invisible time.Duration) (*rmq.MessageView, error) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		views, _ := receiver.Receive(context.Background(), 1, invisible)
		if len(views) > 0 {
			return views[0], nil
		}
	}
	return nil, fmt.Errorf("nothing came")
}

func send(j *job) (any, error) {
	sender, err := j.producer()
	if err != nil {
		return nil, err
	}
	defer sender.GracefulStop()
	for i := range j.Count {
		sent := j.message(fmt.Sprintf("normal-%d", i))
		sent.SetTag("a")
		sent.SetKeys("k1", "k2")
		sent.AddProperty("colour", "red")
		if _, err := sender.Send(context.Background(), sent); err != nil {
			return nil, err
		}
	}
	return []described{}, nil
}

func receive(j *job) (any, error) {
	receiver, err := j.consumer()
	if err != nil {
		return nil, err
	}
	defer receiver.GracefulStop()
	return take(receiver, j.Count)
}

func normal(j *job) (any, error) {
	if _, err := send(j); err != nil {
		return nil, err
	}
	return receive(j)
}

func fifo(j *job) (any, error) {
	sender, receiver, stop, err := j.both()
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range j.Count {
		sent := j.message(fmt.Sprintf("fifo-%d", i))
		sent.SetMessageGroup("one")
		if _, err := sender.Send(context.Background(), sent); err != nil {
			return nil, err
		}
	}
	return take(receiver, j.Count)
}

func delay(j *job) (any, error) {
	sender, receiver, stop, err := j.both()
	if err != nil {
		return nil, err
	}
	defer stop()
	due := time.Now().Add(2 * time.Second)
	sent := j.message("delayed")
	sent.SetDelayTimestamp(due)
	if _, err := sender.Send(context.Background(), sent); err != nil {
		return nil, err
	}
	taken, err := take(receiver, 1)
	return object{"messages": taken, "lateMs": time.Since(due).Milliseconds()}, err
}

func transaction(j *job) (any, error) {
	asked := []string{}
	var lock sync.Mutex
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		lock.Lock()
		defer lock.Unlock()
		asked = append(asked, string(view.GetBody()))
		if string(view.GetBody()) == "rolled-back" {
			return rmq.ROLLBACK
		}
		return rmq.COMMIT
	}}
	sender, receiver, stop, err := j.both(rmq.WithTransactionChecker(checker))
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, fate := range []string{"rolled-back", "committed", "lost"} {
		begun := sender.BeginTransaction()
		_, err := sender.SendWithTransaction(context.Background(), j.message(fate), begun)
		if err == nil && fate == "committed" {
			err = begun.Commit()
		} else if err == nil && fate == "rolled-back" {
			err = begun.RollBack()
		}
		if err != nil {
			return nil, err
		}
	}
	taken, err := takeUntilLost(receiver)
	lock.Lock()
	defer lock.Unlock()
	return object{"messages": taken, "asked": asked}, err
}

func takeUntilLost(receiver rmq.SimpleConsumer) ([]described, error) {
	taken := []described{}
	for {
		more, err := take(receiver, 1)
		taken = append(taken, more...)
		if err != nil {
			return nil, err
		}
		for _, one := range more {
			if one.Body == "lost" {
				return taken, nil
			}
		}
	}
}

func push(j *job) (any, error) {
	attempts := make(chan int32, 100)
	made, err := rmq.NewPushConsumer(j.config(),
		rmq.WithPushAwaitDuration(await),
		rmq.WithPushSubscriptionExpressions(j.subscriptions()),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
				attempts <- view.GetDeliveryAttempt()
				return rmq.FAILURE
			},
		}))
	if err != nil {
		return nil, err
	}
	heldPush = made
	if err := heldPush.Start(); err != nil {
		return nil, err
	}
	sender, err := j.producer()
	if err != nil {
		return nil, err
	}
	defer sender.GracefulStop()
	if _, err := sender.Send(context.Background(), j.message("poison")); err != nil {
		return nil, err
	}
	seen := []int32{}
	for len(seen) < j.Count {
		select {
		case attempt := <-attempts:
			seen = append(seen, attempt)
		case <-time.After(patience):
			return nil, fmt.Errorf("deliveries: %v", seen)
		}
	}
	return seen, nil
}

func invisible(j *job) (any, error) {
	sender, receiver, stop, err := j.both()
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := sender.Send(context.Background(), j.message("again")); err != nil {
		return nil, err
	}
	first, err := takeOne(receiver, time.Minute)
	if err != nil {
		return nil, err
	}
	if err := receiver.ChangeInvisibleDuration(first, time.Second); err != nil {
		return nil, err
	}
	second, err := takeOne(receiver, time.Minute)
	if err != nil {
		return nil, err
	}
	return []described{describe(first), describe(second)}, receiver.Ack(context.Background(), second)
}

func hold(j *job) (any, error) {
	var err error
	if heldProducer, heldConsumer, _, err = j.both(); err != nil {
		return nil, err
	}
	if _, err := heldProducer.Send(context.Background(), j.message("before")); err != nil {
		return nil, err
	}
	return take(heldConsumer, 1)
}

func resume(j *job) (any, error) {
	deadline := time.Now().Add(patience)
	for {
		_, err := heldProducer.Send(context.Background(), j.message("after"))
		if err == nil {
			return take(heldConsumer, 1)
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(200 * time.Millisecond)
	}
}
