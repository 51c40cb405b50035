package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Message bodies that every language here can make from a prefix and a number, and their hashes. */
final class Bodies {
    private Bodies() {}

    /** Return {@code prefix-index}, padded with dots up to {@code sizeBytes}. */
    static byte[] body(String prefix, int index, int sizeBytes) {
        String text = prefix + "-" + index;
        String padding = ".".repeat(Math.max(0, sizeBytes - text.length()));
        return (text + padding).getBytes(StandardCharsets.UTF_8);
    }

    static String sha1(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(body));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Return everything that a test may want to compare, as the Java client sees it. */
    static JSONObject describe(MessageExt message) {
        JSONObject answer = new JSONObject();
        answer.put("topic", message.getTopic());
        answer.put("queueId", message.getQueueId());
        answer.put("queueOffset", message.getQueueOffset());
        answer.put("commitLogOffset", message.getCommitLogOffset());
        answer.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt) {
            answer.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        answer.put("tags", message.getTags());
        answer.put("keys", message.getKeys());
        answer.put("properties", message.getProperties());
        answer.put("sysFlag", message.getSysFlag());
        answer.put("flag", message.getFlag());
        answer.put("reconsumeTimes", message.getReconsumeTimes());
        answer.put("bornTimestamp", message.getBornTimestamp());
        answer.put("storeTimestamp", message.getStoreTimestamp());
        answer.put("bodySize", message.getBody() == null ? 0 : message.getBody().length);
        answer.put("sha1", sha1(message.getBody() == null ? new byte[0] : message.getBody()));
        return answer;
    }
}
