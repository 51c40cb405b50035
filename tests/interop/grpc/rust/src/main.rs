//! Does with the official crate what lines of JSON on standard input say; see programs.py.

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Held {
    producer: Option<Producer>,
    consumer: Option<SimpleConsumer>,
}

#[tokio::main]
async fn main() {
    std::fs::create_dir_all("logs").unwrap(); // where the crate writes its log
    let mut held = Held::default();
    for line in std::io::stdin().lock().lines() {
        let job: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = match run(&job, &mut held).await {
            Ok(result) => json!({ "result": result }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{answer}");
    }
    std::process::exit(0);
}

async fn run(job: &Value, held: &mut Held) -> Outcome<Value> {
    match text(job, "op") {
        "send" => send(job).await,
        "receive" => receive(job).await,
        "normal" => {
            send(job).await?;
            receive(job).await
        }
        "fifo" => fifo(job).await,
        "delay" => delay(job).await,
        "transaction" => transaction(job).await,
        "hold" => hold(job, held).await,
        "resume" => resume(job, held).await,
        other => Err(format!("no operation {other}").into()),
    }
}

fn text<'a>(job: &'a Value, key: &str) -> &'a str {
    job[key].as_str().unwrap_or("")
}

fn count(job: &Value) -> usize {
    job["count"].as_u64().unwrap_or(1) as usize
}

fn client(job: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(job, "endpoint"));
    option.set_enable_tls(job["tls"].as_bool().unwrap_or(false));
    option.set_long_polling_timeout(Duration::from_secs(5));
    if !text(job, "accessKey").is_empty() {
        option.set_access_key(text(job, "accessKey"));
        option.set_secret_key(text(job, "secretKey"));
    }
    option
}

fn producing(job: &Value) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_logging_format(LoggingFormat::Json);
    option.set_topics(vec![text(job, "topic")]);
    option
}

async fn producer(job: &Value) -> Outcome<Producer> {
    let mut made = Producer::new(producing(job), client(job))?;
    made.start().await?;
    Ok(made)
}

async fn consumer(job: &Value) -> Outcome<SimpleConsumer> {
    let mut option = SimpleConsumerOption::default();
    option.set_logging_format(LoggingFormat::Json);
    option.set_topics(vec![text(job, "topic")]);
    option.set_consumer_group(text(job, "group"));
    let mut made = SimpleConsumer::new(option, client(job))?;
    made.start().await?;
    Ok(made)
}

fn described(view: &MessageView) -> Value {
    json!({
        "body": body(view),
        "tag": view.tag().unwrap_or(""),
        "keys": view.keys(),
        "properties": view.properties(),
        "group": view.message_group().unwrap_or(""),
        "attempt": view.delivery_attempt(),
    })
}

fn body(view: &MessageView) -> String {
    String::from_utf8_lossy(view.body()).into_owned()
}

async fn take(job: &Value, receiver: &SimpleConsumer, count: usize) -> Outcome<Vec<Value>> {
    let mut taken = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let all = FilterExpression::new(FilterType::Tag, "*");
    let mut last = String::new();
    while taken.len() < count {
        if Instant::now() > deadline {
            return Err(format!("only {taken:?}; last: {last}").into());
        }
        // That nothing came is an error here.
        let views = receiver
            .receive_with(text(job, "topic"), &all, 16, Duration::from_secs(15))
            .await
            .inspect_err(|error| last = error.to_string())
            .unwrap_or_default();
        for view in views {
            taken.push(described(&view));
            receiver.ack(&view).await?;
        }
    }
    Ok(taken)
}

fn plain(job: &Value, body: &str) -> Outcome<impl Message> {
    Ok(MessageBuilder::builder()
        .set_topic(text(job, "topic"))
        .set_body(body.as_bytes().to_vec())
        .build()?)
}

async fn send(job: &Value) -> Outcome<Value> {
    let sender = producer(job).await?;
    for i in 0..count(job) {
        let message = MessageBuilder::builder()
            .set_topic(text(job, "topic"))
            .set_body(format!("normal-{i}").into_bytes())
            .set_tag("a")
            .set_keys(vec!["k1", "k2"])
            .set_properties(HashMap::from([("colour", "red")]))
            .build()?;
        sender.send(message).await?;
    }
    sender.shutdown().await?;
    Ok(json!([]))
}

async fn receive(job: &Value) -> Outcome<Value> {
    let receiver = consumer(job).await?;
    let taken = take(job, &receiver, count(job)).await?;
    receiver.shutdown().await?;
    Ok(json!(taken))
}

async fn fifo(job: &Value) -> Outcome<Value> {
    let sender = producer(job).await?;
    for i in 0..count(job) {
        let body = format!("fifo-{i}").into_bytes();
        let message = MessageBuilder::fifo_message_builder(text(job, "topic"), body, "one");
        sender.send(message.build()?).await?;
    }
    sender.shutdown().await?;
    receive(job).await
}

async fn delay(job: &Value) -> Outcome<Value> {
    let sender = producer(job).await?;
    let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 3;
    let topic = text(job, "topic");
    let message =
        MessageBuilder::delay_message_builder(topic, b"delayed".to_vec(), due as i64).build()?;
    sender.send(message).await?;
    let receiver = consumer(job).await?;
    let taken = take(job, &receiver, 1).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    sender.shutdown().await?;
    receiver.shutdown().await?;
    Ok(json!({ "messages": taken, "lateMs": now - due as i64 * 1000 }))
}

async fn transaction(job: &Value) -> Outcome<Value> {
    let asked = Arc::new(Mutex::new(Vec::<String>::new()));
    let seen = asked.clone();
    let decide = Box::new(move |_transaction: String, view: MessageView| {
        seen.lock().unwrap().push(body(&view));
        if body(&view) == "rolled-back" {
            TransactionResolution::ROLLBACK
        } else {
            TransactionResolution::COMMIT
        }
    });
    let mut sender = Producer::new_transaction_producer(producing(job), client(job), decide)?;
    sender.start().await?;
    for fate in ["rolled-back", "committed", "lost"] {
        let body = fate.as_bytes().to_vec();
        let message = MessageBuilder::transaction_message_builder(text(job, "topic"), body);
        let begun = sender.send_transaction_message(message.build()?).await?;
        match fate {
            "committed" => begun.commit().await?,
            "rolled-back" => begun.rollback().await?,
            _ => (),
        }
    }
    let receiver = consumer(job).await?;
    let mut taken = Vec::new();
    while !taken.iter().any(|one: &Value| one["body"] == "lost") {
        taken.extend(take(job, &receiver, 1).await?);
    }
    sender.shutdown().await?;
    receiver.shutdown().await?;
    let asked = asked.lock().unwrap().clone();
    Ok(json!({ "messages": taken, "asked": asked }))
}

async fn hold(job: &Value, held: &mut Held) -> Outcome<Value> {
    let sender = producer(job).await?;
    let receiver = consumer(job).await?;
    sender.send(plain(job, "before")?).await?;
    let taken = take(job, &receiver, 1).await?;
    held.producer = Some(sender);
    held.consumer = Some(receiver);
    Ok(json!(taken))
}

async fn resume(job: &Value, held: &mut Held) -> Outcome<Value> {
    let (Some(sender), Some(receiver)) = (&held.producer, &held.consumer) else {
        return Err("nothing is held".into());
    };
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = sender.send(plain(job, "after")?).await {
        if Instant::now() > deadline {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(json!(take(job, receiver, 1).await?))
}
